"""Results that threads deliver while others take them."""

from threading import Barrier, Thread
from typing import Any, cast

from hipq_django.domain.states import Phase
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.transitions.values import Claim, Result, Succeeded

NOTHING = cast(Any, None)


def claims(number: int) -> list[Claim]:
    return [Claim(pk, 1, Phase.REQUEST, NOTHING, NOTHING) for pk in range(number)]


def test_of_two_results_of_a_claim_one_counts_whoever_comes_first() -> None:
    """As where a handler ends while its worker, which must stop, puts its job back."""
    batch, both = CurrentBatch(), claims(5_000)
    batch.add(both)
    start = Barrier(3)

    def deliver(value: str) -> None:
        start.wait()
        for claim in both:
            batch.deliver(Succeeded(claim, value))

    threads = [Thread(target=deliver, args=[value]) for value in ("handler", "put back")]
    for thread in threads:
        thread.start()
    start.wait()
    written: list[Result] = []
    while any(thread.is_alive() for thread in threads) or batch.unwritten:
        with batch.lease() as lease:
            written += lease.results
            lease.forget(lease.results)

    assert sorted(result.claim.id for result in written) == list(range(5_000))
    assert (batch.unfinished, len(batch)) == (0, 0)


def test_a_result_of_a_claim_that_was_discarded_does_not_count() -> None:
    batch, [kept, dropped] = CurrentBatch(), claims(2)
    batch.add([kept, dropped])
    batch.discard([dropped])

    for claim in (dropped, kept):
        batch.deliver(Succeeded(claim, None))

    with batch.lease() as lease:
        assert [result.claim for result in lease.results] == [kept]
    assert (batch.unfinished, batch.unwritten, len(batch)) == (0, 1, 1)
