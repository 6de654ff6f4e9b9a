"""How many runs a node may have: a bucket that is refilled evenly. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

MINUTE = timedelta(minutes=1)


def take_run(full_again: datetime, per_minute: int, now: datetime) -> tuple[datetime, datetime]:
    """Take one run from a bucket; return when it may start, and when the bucket is full again.

    `full_again` is what the last call returned. So many runs at once may start at once, the next
    ones when their turn comes.
    """
    step = MINUTE / per_minute
    full = max(full_again, now) + step
    return max(now, turn_of(full)), full


def turn_of(full_again: datetime) -> datetime:
    """Return when the run that was taken last may start; a moment long ago if at once."""
    return full_again - MINUTE
