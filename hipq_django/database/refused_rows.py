"""Moves many rows together; those that the database refuses are found, named and left alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Any

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.database.errors import is_refusal

LEFT_SECONDS = 60.0
"""How long a row is left alone whose move was refused; it may be mended meanwhile."""

MAX_FOUND = 20
"""How many of them one call looks for: each costs some transactions."""


class RefusedRows:
    """The rows that one duty leaves alone, because their moves were refused.

    A trigger or a constraint of the project refuses them, or a value in them cannot be read here.
    `field` is what the log calls the id of such a row. With `for_good` none is tried again.
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

        If that is refused, each half is moved by itself, and so on down to the rows at fault.
        """
        moved, parts, found = 0, [ids] if ids else [], 0
        while parts and found < MAX_FOUND:
            part = parts.pop()
            try:
                moved += move(part)
            except Exception as error:
                if not is_refusal(error):
                    raise
                if len(part) == 1:
                    found += 1
                    self._leave(part[0], error)
                else:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
        return moved

    def _leave(self, pk: int, error: Exception) -> None:
        self._left[pk] = steady() + self._seconds, error
        how_long = "" if self._seconds == inf else f" for {self._seconds:g} s"
        sentence = f"left alone{how_long}; the others go on"
        row: dict[str, Any] = {self._field: pk}
        events.error("row_refused", sentence, duty=self._duty, **row, exception=error)


class RefusedRowsError(Exception):
    """A duty leaves rows alone; the text quotes no values of theirs."""
