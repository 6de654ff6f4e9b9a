"""When a node runs: now, at a later moment, or both. Pure.

A node has one run at a time, and one later moment beside it. So of several moments the earliest
that is still to come counts; one that has come is now.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

Moment = datetime | None


class Wanted(NamedTuple):
    """When somebody wants a node to run."""

    now: bool
    later: Moment


class Times(NamedTuple):
    """When the run of a node is for, and when it is to run again after that."""

    run_time: Moment
    """None: now."""
    alarm: Moment


def wanted(moments: Iterable[Moment], now: datetime) -> Wanted:
    """Return when a node is wanted that was woken for these moments; None is now."""
    given = list(moments)
    return Wanted(any(m is None or m <= now for m in given), earliest(given, now))


def earliest(moments: Iterable[Moment], after: datetime) -> Moment:
    """Return the earliest moment after another one."""
    return min((m for m in moments if m is not None and m > after), default=None)


def of_new_run(when: Wanted, alarm: Moment, now: datetime) -> Times:
    """Return the times of a node that gets a run; an alarm that has passed is made up for by it."""
    moments = (when.later, alarm)
    run_time = None if when.now else earliest(moments, now)
    return Times(run_time, earliest(moments, run_time or now))


def of_waiting_run(when: Wanted, times: Times, now: datetime) -> Times:
    """Return the times of a node whose run waits for a later moment: the earliest wins.

    If it comes now instead, that moment is kept.
    """
    run_time, alarm = times
    if when.now:
        return Times(None, earliest((run_time, when.later, alarm), now))
    if run_time is None or when.later is None or when.later >= run_time:
        return times
    return Times(when.later, alarm)
