"""A connection that breaks, or code that raises, at a chosen moment of a worker's pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import Error, OperationalError, connection

NUMBERS = re.compile(r"\d+|(%s(, )?)+")
READS = re.compile(r"\w+\s+SELECT(?!.*\bhipq_\w+\()", re.DOTALL)
"""Before and after what only reads, less is at stake than before the next write."""


class Faults:
    """Counts the moments at which a connection may break, and breaks it at one of them.

    Each statement and each commit has two: before it reaches the database, and after it was
    executed, when its reply gets lost. A broken connection takes its transaction along, and then
    nobody can tell the two apart, so a statement within one has only the first.
    """

    def __init__(self, at: int, kind: type[Exception]) -> None:
        self._at = at
        self._kind = kind
        self.moments: list[str] = []
        """What was about to happen, or just had, at each."""
        self.place = ""
        """Where the connection broke; empty as long as it has not."""

    def _pass(self, moment: str) -> None:
        self.moments.append(moment)
        if len(self.moments) == self._at:
            self.place = moment[:67]
            raise self._kind(f"server closed the connection: {self.place}")

    def execute(self, run: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        """Stand around each statement."""
        self._pass(f"before {sql}")
        result = run(sql, *arguments)
        if self._can_be_told_apart(sql):
            self._pass(f"after {sql}")
        return result

    def _can_be_told_apart(self, sql: str) -> bool:
        """Return whether it matters that this was executed before what is raised now."""
        if issubclass(self._kind, Error):
            return not connection.in_atomic_block or sql.startswith("RELEASE")
        # An open transaction ends with its connection, and this error breaks none.
        return not sql.startswith("BEGIN")

    def commit(self, run: Callable[[], None]) -> None:
        """Stand around each commit."""
        self._pass("before a commit")
        run()
        self._pass("after a commit")


@contextmanager
def breaking(at: int, kind: type[Exception] = OperationalError) -> Iterator[Faults]:
    """Break this thread's connection at moment number `at` from now on, once.

    Of another `kind` than errors of the database is what raises around a sound connection.
    """
    faults = Faults(at, kind)
    database: Any = connection  # a commit is no statement that could be wrapped
    commit = database._commit
    database._commit = lambda: faults.commit(commit)
    try:
        with connection.execute_wrapper(faults.execute):
            yield faults
    finally:
        del database._commit


Known = set[str]


def at_each_moment(break_at: Callable[[int], Faults], known: Known | None = None) -> None:
    """Break at no moment, and then at each of those that there were."""
    for at in range(1, len(break_at(0).moments) + 1):
        break_at(at)


def at_each_write(break_at: Callable[[int], Faults], known: Known | None = None) -> None:
    """Break at no moment, and then at each statement that writes and is not yet known."""
    known = set() if known is None else known
    for at, moment in enumerate(break_at(0).moments, start=1):
        statement = NUMBERS.sub("?", moment)
        if statement not in known and not READS.match(moment):
            known.add(statement)
            break_at(at)


InTurn = Callable[..., None]

IN_TURN = pytest.mark.parametrize(
    "in_turn", [at_each_write, pytest.param(at_each_moment, marks=pytest.mark.nightly)]
)
