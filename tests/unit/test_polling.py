"""When a scheduler looks through its queues again, and from where."""

from __future__ import annotations

import pytest

from hipq_django.scheduler.polling import (
    MAX_SCAN_PAUSE,
    PROBE_SECONDS,
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


def looked(*looks: tuple[float, bool]) -> ProbePacer:
    """Return what remembers looks, each of so many seconds, whole ones and others, until `AT`."""
    remembered = ProbePacer()
    for seconds, whole in looks:
        remembered.record(AT - seconds, AT, full_scan=whole, has_found=True)
    assert remembered.defer_probe(AT)
    return remembered


def test_others_wait_for_a_moment_only() -> None:
    looks = looked((0.0, True))

    assert looks.defer_probe(AT + PROBE_SECONDS * 0.99)
    assert not looks.defer_probe(AT + PROBE_SECONDS * 1.01)


def test_after_a_look_that_found_nothing_they_wait_from_the_first_turn() -> None:
    """A worker that is woken serves who has called it, without another look."""
    looks = ProbePacer()
    looks.record(AT - 1, AT - 1, full_scan=True, has_found=False)

    assert looks.defer_probe(AT)
    assert looks.defer_probe(AT + PROBE_SECONDS * 0.99)


def test_quick_looks_are_whole() -> None:
    looks = ProbePacer()
    assert looks.is_full_scan_due(0.0)

    looks.record(AT, AT + QUICK_SECONDS / 2, full_scan=True, has_found=False)

    assert looks.is_full_scan_due(AT)


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

QUEUE, LIMITS = 7, "limits"


def scanned(seconds: float, *, full_scan: bool = True) -> HeldBackScans:
    """Return what remembers a look through held jobs, of so many seconds until `AT`."""
    scans = HeldBackScans()
    assert scans.may_begin(QUEUE, AT - seconds)
    scans.record(QUEUE, AT - seconds, AT, LIMITS, full_scan=full_scan)
    return scans


def test_held_jobs_are_looked_through_for_a_share_of_the_time() -> None:
    scans = scanned(0.02)

    assert not scans.may_begin(QUEUE, AT + 0.02 / SCAN_SHARE * 0.99)
    assert scans.may_begin(QUEUE, AT + 0.02 / SCAN_SHARE * 1.01)


def test_once_that_was_in_vain_the_next_time_has_pauses() -> None:
    scans = scanned(0.02)
    scans.record(QUEUE, AT + 1, AT + 1.02, LIMITS, full_scan=False)

    assert not scans.may_begin(QUEUE, AT + 1.03)


def test_what_may_change_a_verdict_ends_the_pause() -> None:
    scans = scanned(0.5)
    scans.note_limits(QUEUE, LIMITS)
    assert not scans.may_begin(QUEUE, AT)
    scans.note_limits(QUEUE, "other limits")
    assert scans.may_begin(QUEUE, AT)
    scans = scanned(0.5)
    scans.forget(QUEUE)
    assert scans.may_begin(QUEUE, AT)


@pytest.mark.parametrize(
    ("looked_at", "started", "most"), [(0, 0, False), (500, 249, False), (500, 250, True)]
)
def test_most_of_what_a_look_was_for_started_or_not(
    looked_at: int, started: int, most: bool
) -> None:
    scans = HeldBackScans()
    assert not scans.start_most(1)

    scans.gave(1, looked_at, started)
    scans.gave(2, 1, 1)

    assert scans.start_most(1) is most


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
