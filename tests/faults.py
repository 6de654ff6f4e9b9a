"""A connection that breaks, or code that raises, at a chosen moment of a worker's pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, OperationalError, connection


class Faults:
    """Counts the moments at which a connection may break, and breaks it at one of them.

    Each statement and each commit has two: before it reaches the database, and after it was
    executed, when its reply gets lost. A broken connection takes its transaction along, and then
    nobody can tell the two apart, so a statement within one has only the first.
    """

    def __init__(self, at: int, kind: type[Exception]) -> None:
        self._at = at
        self._kind = kind
        self._moments = 0
        self.place = ""
        """Where the connection broke; empty as long as it has not."""

    def _pass(self, place: str) -> None:
        self._moments += 1
        if self._moments == self._at:
            self.place = place
            raise self._kind(f"server closed the connection: {place}")

    def execute(self, run: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        """Stand around each statement."""
        self._pass(f"before {sql[:60]}")
        result = run(sql, *arguments)
        if self._can_be_told_apart(sql):
            self._pass(f"after {sql[:60]}")
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
