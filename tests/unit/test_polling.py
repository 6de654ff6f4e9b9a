"""When a scheduler looks through its queues again, and from where."""

from __future__ import annotations

import pytest

from hipq_django.scheduler.polling import (
    MAX_SCAN_PAUSE,
    QUICK_SECONDS,
    SCAN_SHARE,
    SHARE,
    SPARE_SECONDS,
    HeldBackScans,
    ProbePacer,
    StartDelay,
)

SLOW = 2 * QUICK_SECONDS
AT = 100.0


def test_slow_ones_are_whole_for_a_share_of_the_time() -> None:
    looks = ProbePacer()
    looks.record(AT, AT + SLOW, full_scan=True, has_found=False)
    looks.record(AT + SLOW, AT + SLOW, full_scan=False, has_found=False)

    ended = AT + SLOW
    assert not looks.is_full_scan_due(ended + SLOW / SHARE * 0.99)
    assert looks.is_full_scan_due(ended + SLOW / SHARE * 1.01)


def test_a_whole_look_while_the_database_stood_still_does_not_keep_the_next_one_waiting() -> None:
    looks = ProbePacer()

    looks.record(AT, AT + 60.0, full_scan=True, has_found=False)

    assert looks.is_full_scan_due(AT + 60.0 + MAX_SCAN_PAUSE)


# Through held jobs

QUEUE = 7


def scanned(seconds: float, *, full_scan: bool = True) -> HeldBackScans:
    """Return what remembers a look through held jobs, of so many seconds until `AT`."""
    scans = HeldBackScans()
    assert scans.may_begin(QUEUE, AT - seconds)
    scans.record(QUEUE, AT - seconds, AT, full_scan=full_scan)
    return scans


def test_held_jobs_are_looked_through_for_a_share_of_the_time() -> None:
    scans = scanned(0.02)

    assert not scans.may_begin(QUEUE, AT + 0.02 / SCAN_SHARE * 0.99)
    assert scans.may_begin(QUEUE, AT + 0.02 / SCAN_SHARE * 1.01)


def test_what_may_change_a_verdict_ends_the_pause() -> None:
    scans = scanned(0.5)
    assert not scans.may_begin(QUEUE, AT)
    scans.forget(QUEUE)
    assert scans.may_begin(QUEUE, AT)


# How long jobs whose starts are counted may take to start


def test_a_claim_that_took_long_once_does_not_delay_the_next_starts() -> None:
    delay = StartDelay()
    delay.record(0.01)
    usual = delay.seconds

    delay.record(3_600.0)
    after_one = delay.seconds
    delay.record(0.01)

    assert (after_one, delay.seconds) == (usual, usual)


def test_where_all_claims_take_long_their_jobs_still_start() -> None:
    delay = StartDelay()

    delay.record(1.0)
    delay.record(1.5)
    delay.record(8.0)

    assert delay.seconds == pytest.approx(2 * 1.5 + SPARE_SECONDS)
