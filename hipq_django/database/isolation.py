"""Isolation: rows are written together, and one that cannot be written stops only itself.

A trigger or a constraint of the project refuses a row, another transaction has locked what the row
needs, or the server cancels a statement that takes too long. The rows are then written in halves,
down to the row at fault, which is left alone for a while. What concerns all rows is raised: an
outage, or that this worker was declared lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.database.errors import (
    DeclaredLostError,
    LockedRowError,
    is_cancelled,
    is_locked_out,
    is_refusal,
    may_pass,
    said_of,
)

PATIENCE_SECONDS = 30.0
"""How long a row is tried whose error may pass; then the row itself is at fault.

After this time a row that is still locked is named in the log.
"""

LEAST_PAUSE = 0.25
"""How long a row is left alone at first; then for as long as it has failed until now."""

MOST_PAUSE = 2.0
"""How long it is, at most, while it is not at fault: somebody waits for it."""

FAULT_PAUSE = 30.0
"""How long a row at fault is left alone; it may be mended meanwhile."""

MOST_SPENT = 0.3
"""After so many seconds of tries that fail a call leaves the other rows for the next one."""

ALL = 10_000
"""How many rows are written together while nothing fails; more than any page."""

Row = TypeVar("Row", bound=Hashable)
T = TypeVar("T")


def patience_with(error: Exception) -> float | None:
    """Return for how many seconds a row is tried before such an error is the row's own fault.

    Return None if no row is at fault. A lock is nobody's fault, however long it lasts.
    """
    if isinstance(error, DeclaredLostError):
        return None
    if is_locked_out(error):
        return inf
    if is_cancelled(error) or may_pass(error):
        return PATIENCE_SECONDS
    return 0.0 if is_refusal(error) else None


@dataclass(slots=True)
class _Left:
    """A row that is left alone."""

    since: float
    """When it failed for the first time in this way."""
    patience: float
    error: Exception
    tried: float = 0.0
    """When it failed last."""
    until: float = 0.0
    is_at_fault: bool = False
    is_named: bool = False


class Isolation(Generic[Row]):
    """The rows that one kind of write leaves alone at present, by their ids say.

    `doing` is the word for it in the log; `field` is the log's name of such an id, or returns all
    fields that name a row. Any thread may call any method.
    """

    def __init__(
        self,
        doing: str,
        field: str | Callable[[Row], dict[str, Any]] = "job_id",
        *,
        most: int = ALL,
        fault_pause: float | None = None,
    ) -> None:
        self._doing = doing
        self._field = field
        self._fault_pause = fault_pause
        self._left: dict[Row, _Left] = {}
        self._most = self._together = most
        """How many rows are written together: fewer after a failure, more with each success."""

    @property
    def is_calm(self) -> bool:
        """Whether no row is left alone, and nothing has failed for a while."""
        return not self._left and self._together == self._most

    # Writing

    def move(
        self,
        rows: Sequence[Row],
        write: Callable[[Sequence[Row]], int],
        alone: Callable[[Row, Exception], None] | None = None,
    ) -> int:
        """Write rows by `write(rows)`, a transaction or a savepoint; return how many it moved.

        Rows that this call does not come to are left for the next one. For a row that is at fault,
        `alone(row, error)` decides.
        """
        moved, spent = 0, 0.0
        parts = self._parts(rows)
        while parts and spent <= MOST_SPENT:
            part = parts.pop(0)
            began = steady()
            try:
                moved += write(part)
            except Exception as error:
                if patience_with(error) is None:
                    raise
                spent += steady() - began
                self._together = max(1, len(part) // 2)
                parts[:0] = _halves(part)
                if len(part) == 1:
                    self.leave(part[0], error, alone)
            else:
                self._note_written(part, began)
        return moved

    @contextmanager
    def apart(
        self, row: Row, alone: Callable[[Row, Exception], None] | None = None
    ) -> Iterator[None]:
        """Let the block, which is about one row, stop nothing else if it fails."""
        try:
            yield
        except Exception as error:
            if patience_with(error) is None:
                raise
            self.leave(row, error, alone)

    @staticmethod
    def together(write: Callable[[], T]) -> T | None:
        """Return what `write()` returns, or None if one of its rows does not let it succeed."""
        try:
            return write()
        except Exception as error:
            if patience_with(error) is None:
                raise
            return None

    def _parts(self, rows: Sequence[Row]) -> list[Sequence[Row]]:
        """Return the rows in the parts that are tried; after a failure each row has its turn."""
        if len(rows) <= self._together:  # as nearly always
            return [rows] if rows else []
        size, rows = self._together, rows if self.is_calm else random.sample(rows, len(rows))
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def _note_written(self, rows: Sequence[Row], began: float) -> None:
        """Forget rows, but none that `write` itself has left alone."""
        for row in rows if self._left else ():
            left = self._left.get(row)
            if left and left.tried < began:
                self._left.pop(row, None)
        self._together = min(self._most, 2 * self._together)

    # What is left alone

    def leave(
        self,
        row: Row,
        error: Exception,
        alone: Callable[[Row, Exception], None] | None = None,
    ) -> None:
        """Leave a row alone that has failed alone; once it is at fault `alone` decides."""
        now, patience = steady(), patience_with(error) or 0.0
        self._forget_untried(now)
        left = self._left.setdefault(row, _Left(now, patience, error))
        if left.patience != patience:  # how long a lock lasted says nothing about the row
            left.since, left.patience = now, patience
        seconds = now - left.since
        left.error, left.is_at_fault = error, seconds >= patience
        pause = max(LEAST_PAUSE, min(seconds, MOST_PAUSE))
        if left.is_at_fault:
            pause = FAULT_PAUSE if self._fault_pause is None else self._fault_pause
        left.tried, left.until = now, now + pause
        if left.is_at_fault and alone and self._is_decided(row, error, alone):
            self.forget([row])
        elif seconds >= min(patience, PATIENCE_SECONDS) and not left.is_named:
            left.is_named = True
            self._name(row, left, round(seconds))

    def _is_decided(
        self, row: Row, error: Exception, alone: Callable[[Row, Exception], None]
    ) -> bool:
        try:
            alone(row, error)
        except Exception as second:
            if patience_with(second) is None:
                raise
            return False
        return True

    def _fields(self, row: Row) -> dict[str, Any]:
        return self._field(row) if callable(self._field) else {self._field: row}

    def _name(self, row: Row, left: _Left, seconds: int) -> None:
        named = self._fields(row)
        log = events.error if left.is_at_fault else events.warning
        sentence = "it is tried again, ever more seldom; the others go on"
        said = said_of(left.error)
        log("row_left_alone", sentence, doing=self._doing, **named, seconds=seconds, error=said)

    def forget(self, rows: Collection[Row]) -> None:
        """Forget rows that are written, or that are not to be written any more."""
        if self._left:
            for row in rows:
                self._left.pop(row, None)

    @property
    def ids(self) -> set[Row]:
        """The rows that are left alone now."""
        return set(self._present())

    @property
    def at_fault(self) -> dict[Row, Exception]:
        """The rows that are left alone now because they are at fault, with their errors."""
        return {row: left.error for row, left in self._present().items() if left.is_at_fault}

    def _present(self) -> dict[Row, _Left]:
        if not self._left:  # as nearly always
            return {}
        now = steady()
        self._forget_untried(now)
        return {row: left for row, left in list(self._left.items()) if now < left.until}

    def _forget_untried(self, now: float) -> None:
        """Forget rows that nobody has tried again for long: they may be gone, or well."""
        for row, left in list(self._left.items()):
            if left.until + 2 * PATIENCE_SECONDS < now:
                self._left.pop(row, None)

    def failing_for(self, row: Row) -> float:
        """Return for how many seconds a row has failed."""
        left = self._left.get(row)
        return steady() - left.since if left else 0.0

    @property
    def error(self) -> RowsLeftAloneError | None:
        """What is told of the duty that writes the rows, if the log has named one of them."""
        named = [row for row, left in list(self._left.items()) if left.is_named]
        if not named:
            return None
        field, value = next(iter(self._fields(named[0]).items()))
        more = f" and {len(named) - 1} more" if len(named) > 1 else ""
        return RowsLeftAloneError(f"{field}={value}{more} left alone")


def write_or_refuse(
    rows: Sequence[Row],
    write: Callable[[Sequence[Row]], object],
    refuse: Callable[[Row, Exception], None],
) -> None:
    """Write rows in the transaction that is open; `refuse(row, error)` is called for one at fault.

    Raise `LockedRowError` if a later try may write what is left.
    """
    done: set[Row] = set()

    def write_some(some: Sequence[Row]) -> int:
        write(some)
        done.update(some)
        return len(some)

    def refuse_one(row: Row, error: Exception) -> None:
        refuse(row, error)
        done.add(row)

    Isolation[Row]("write").move(rows, write_some, refuse_one)
    if len(done) < len(rows):
        raise LockedRowError


def _halves(rows: Sequence[Row]) -> list[Sequence[Row]]:
    middle = len(rows) // 2
    return [rows[:middle], rows[middle:]] if middle else []


class RowsLeftAloneError(Exception):
    """A duty leaves rows alone; the text quotes no values of theirs."""
