"""Which locks of others are to be named: those that last."""

from __future__ import annotations

from hipq_django.domain.lasting_locks import LastingLocks

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


def test_the_end_of_a_short_lock_is_not_told() -> None:
    locks = LastingLocks(30)
    locks.wait(1, AT)

    assert locks.end(1, AT + 29) == 0


def test_a_lock_of_a_queue_in_which_nothing_waits_is_forgotten() -> None:
    locks = LastingLocks(30)
    for queue in (1, 2):
        locks.wait(queue, AT)
        locks.is_to_be_named(queue, AT + 30)

    locks.keep({2})

    assert len(locks) == 1
    assert (locks.end(1, AT + 40), locks.end(2, AT + 40)) == (0, 40)
