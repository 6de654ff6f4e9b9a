"""How long to wait between two looks, and which waits for others are to be named. Pure.

Moments are those of a clock that never goes back, in seconds.
"""

from __future__ import annotations

from collections.abc import Collection

LOCKED_SECONDS = 1.0
"""How long a row is left alone that waited for a lock."""


def pause_after(seconds: float, share: float, *, least: float = 0.0, most: float) -> float:
    """Return for how many seconds to rest after a look that took so many.

    Looks then take no more than this share of the time, unless they take longer than `most * share`
    each: whatever a look has taken, perhaps because the database stood still, nobody waits longer
    than `most` for the next one.
    """
    return min(max(least, seconds / share), most)


class LastingLocks:
    """Since when others have kept rows locked, by their ids, whenever this worker tried.

    Mostly others are workers, for milliseconds. But it may be anybody, for any time: then the row
    is to be named, once after `patience_seconds`, and once at the end.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._since: dict[int, float] = {}
        self._named: set[int] = set()

    def __len__(self) -> int:
        return len(self._since)

    def wait(self, row: int, now: float) -> float:
        """Note that a row is locked; return for how long that has been so."""
        return now - self._since.setdefault(row, now)

    def seconds(self, row: int, now: float) -> float:
        """Return for how long a row has been locked, 0 if it is not known to be."""
        return now - self._since.get(row, now)

    def is_to_be_named(self, row: int, now: float) -> bool:
        """Return whether it has lasted for long, the first time that this is so."""
        if row in self._named or self.seconds(row, now) < self._patience_seconds:
            return False
        self._named.add(row)
        return True

    def end(self, row: int, now: float) -> float:
        """Note that a row was not locked; return for how long it was, if that was named."""
        since = self._since.pop(row, now)
        if row not in self._named:
            return 0.0
        self._named.discard(row)
        return now - since

    def keep(self, rows: Collection[int]) -> None:
        """Forget all but these: in the others nothing waits for an end."""
        self._since = {row: since for row, since in self._since.items() if row in rows}
        self._named &= self._since.keys()
