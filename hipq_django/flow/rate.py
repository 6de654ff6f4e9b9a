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
    known = now if full_again > now + MINUTE + step else full_again  # a clock was ahead: forget it
    full = max(known, now) + step
    return max(now, full - MINUTE), full


def turn_of(full_again: datetime, now: datetime) -> datetime:
    """Return when the run that was taken last may start; a moment that has passed if at once.

    No run is taken long before its turn: a turn in a distant future is of a clock that was ahead.
    """
    turn = full_again - MINUTE
    return now if turn > now + 2 * MINUTE else turn
