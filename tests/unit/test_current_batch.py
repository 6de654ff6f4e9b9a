"""Results that threads deliver while others take them."""

from threading import Barrier, Thread
from typing import Any, cast

import pytest

from hipq_django.database.errors import LockedRowError
from hipq_django.domain.states import Phase
from hipq_django.scheduler.current_batch import (
    MAX_UNWRITTEN,
    MAX_UNWRITTEN_BYTES,
    SMALL_BYTES,
    CurrentBatch,
)
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


@pytest.mark.parametrize(
    ("number", "size"), [(MAX_UNWRITTEN, SMALL_BYTES), (4, MAX_UNWRITTEN_BYTES // 4)]
)
def test_nothing_more_is_claimed_while_many_or_large_results_are_to_be_written(
    number: int, size: int
) -> None:
    batch, [first, *others] = CurrentBatch(), claims(number)
    batch.add([first, *others])
    for claim in others:
        batch.deliver(Succeeded(claim, None, size))
    assert not batch.is_full

    for _ in range(2):  # the second result of a claim does not count
        batch.deliver(Succeeded(first, None, size))
    assert (batch.is_full, batch.room) == (True, 0)

    with batch.lease() as lease:
        assert batch.is_full, "what is being written is not written yet"
        lease.forget(lease.results)
    assert not batch.is_full


def test_large_results_that_are_kept_for_a_lock_stop_no_others() -> None:
    batch, [large] = CurrentBatch(), claims(1)
    batch.add([large])
    batch.deliver(Succeeded(large, None, MAX_UNWRITTEN_BYTES))
    assert batch.is_full

    with batch.lease() as lease:
        batch.isolation.leave(large, LockedRowError())
        lease.defer()
    assert not batch.is_full
