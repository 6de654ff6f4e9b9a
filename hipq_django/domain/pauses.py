"""How long to wait between two looks. Pure."""

from __future__ import annotations


def pause_after(seconds: float, share: float, *, least: float = 0.0, most: float) -> float:
    """Return for how many seconds to rest after a look that took so many.

    Looks then take no more than this share of the time, unless they take longer than `most * share`
    each: whatever a look has taken, perhaps because the database stood still, nobody waits longer
    than `most` for the next one.
    """
    return min(max(least, seconds / share), most)
