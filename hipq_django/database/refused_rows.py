"""Moves many rows together; those that are refused, or wait for a lock, are left alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Any, TypeVar

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.database.errors import is_locked_out, is_refusal, said_of
from hipq_django.domain.waits import LOCKED_SECONDS

T = TypeVar("T")

LEFT_SECONDS = 60.0
"""How long a row is left alone whose move was refused; it may be mended meanwhile."""

MAX_FOUND = 20
"""How many of them one call looks for: each costs some transactions."""

MAX_WAITS = 4
"""After how many waits for locks of others a call does not look closer at what waits."""


class RefusedRows:
    """The rows that one duty leaves alone, because their moves were refused.

    A trigger or a constraint of the project refuses them, or a value in them cannot be read here.
    `field` is what the log calls the id of such a row. With `for_good` none is tried again. Rows
    whose trigger waits for a lock of others are left too, for a moment.
    """

    def __init__(self, duty: str, field: str = "job_id", *, for_good: bool = False) -> None:
        self._duty = duty
        self._field = field
        self._seconds = inf if for_good else LEFT_SECONDS
        self._left: dict[int, tuple[float, Exception]] = {}
        """Until when each is left alone, and why; by the steady clock."""

    @property
    def ids(self) -> Collection[int]:
        """The ids of the rows that are left alone now."""
        now = steady()
        self._left = {pk: left for pk, left in self._left.items() if now < left[0]}
        return self._left.keys()

    @property
    def waiting(self) -> set[int]:
        """The ids of those that have been left because of a lock, since the last look at `ids`."""
        return {pk for pk, (_, error) in self._left.items() if is_locked_out(error)}

    @property
    def at_fault(self) -> set[int]:
        """The ids of those whose own moves were refused, since the last look at `ids`."""
        return self._left.keys() - self.waiting

    @property
    def error(self) -> RefusedRowsError | None:
        """What to tell of the duty: which rows it leaves alone, if there are any."""
        first = next(iter(self.ids), None)
        if first is None:
            return None
        kind = type(self._left[first][1]).__name__
        more = f" and {len(self._left) - 1} more" if len(self._left) > 1 else ""
        return RefusedRowsError(f"{self._field}={first}{more} left alone: {kind}")

    def move(self, ids: Sequence[int], move: Callable[[Sequence[int]], int]) -> int:
        """Move rows by `move(ids)`, a transaction; return how many rows it moved.

        If that is refused, or waits for a lock of others, each half is moved by itself, and so on
        down to the rows at fault. A wait takes its time: after some of them what waits is left as
        it is, and a later call, which has fewer rows to move, looks closer.
        """
        moved, parts, found, waits = 0, [ids] if ids else [], 0, 0
        while parts and found < MAX_FOUND:
            part = parts.pop()
            try:
                moved += move(part)
            except Exception as error:
                is_wait = is_locked_out(error)
                if not (is_wait or is_refusal(error)):
                    raise
                waits += is_wait
                if len(part) > 1 and not (is_wait and waits >= MAX_WAITS):
                    parts += reversed(halves(part))
                elif is_wait:
                    self._left |= dict.fromkeys(part, (steady() + LOCKED_SECONDS, error))
                else:
                    found += 1
                    self._leave(part[0], error)
        return moved

    def _leave(self, pk: int, error: Exception) -> None:
        self._left[pk] = steady() + self._seconds, error
        how_long = "" if self._seconds == inf else f" for {self._seconds:g} s"
        sentence = f"left alone{how_long}; the others go on"
        row: dict[str, Any] = {self._field: pk}
        events.error("row_refused", sentence, duty=self._duty, **row, error=said_of(error))


def halves(values: Sequence[T]) -> list[list[T]]:
    """Return the halves of several values; none of a single one."""
    middle = len(values) // 2
    return [list(values[:middle]), list(values[middle:])] if middle else []


class RefusedRowsError(Exception):
    """A duty leaves rows alone; the text quotes no values of theirs."""
