"""How long to wait between two looks, and which waits for others are to be named."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hipq_django.domain.waits import LastingLocks, pause_after

AT = 100.0


def test_a_lock_counts_from_the_first_try_to_the_last() -> None:
    locks = LastingLocks(30)

    assert [locks.wait(1, AT + seconds) for seconds in (0, 1, 7)] == [0, 1, 7]
    locks.end(1, AT + 8)
    assert locks.wait(1, AT + 9) == 0


def test_a_lock_that_lasts_is_to_be_named_once() -> None:
    locks = LastingLocks(30)
    locks.wait(1, AT)

    named = [locks.is_to_be_named(1, AT + seconds) for seconds in (29, 30, 31)]

    assert named == [False, True, False]
    assert (locks.end(1, AT + 40), locks.end(1, AT + 41)) == (40, 0)


def test_a_lock_of_a_queue_in_which_nothing_waits_is_forgotten() -> None:
    locks = LastingLocks(30)
    for queue in (1, 2):
        locks.wait(queue, AT)
        locks.is_to_be_named(queue, AT + 30)

    locks.keep({2})

    assert len(locks) == 1
    assert (locks.end(1, AT + 40), locks.end(2, AT + 40)) == (0, 40)


# Between two looks

SECONDS = st.floats(0, 1e6)
SHARES = st.floats(0.001, 0.5)


@given(SECONDS, SHARES, SECONDS, SECONDS)
def test_a_pause_lies_between_its_bounds_and_keeps_the_share(
    took: float, share: float, one: float, other: float
) -> None:
    least, most = sorted((one, other))

    pause = pause_after(took, share, least=least, most=most)

    assert least <= pause <= most
    assert pause == most or took / (took + pause + 1e-9) <= share * 1.001
