"""Lets the code of a job fail inside the transaction of a test as it would outside of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import connections

from hipq_django.database.transactions import is_aborted
from hipq_django.exceptions import HipqError


class BrokenTransactionError(HipqError):
    """The code of a job went on after an error of the database, in the transaction of a test."""


@contextmanager
def guarded() -> Iterator[list[str]]:
    """Let a block break no transaction that is open; yield the databases where it would have.

    The list is filled at the end, when what the block wrote there is rolled back. In production no
    transaction is open around a job's code, so a statement that fails undoes nothing but itself.
    """
    broken: list[str] = []
    guards = [_Guard(c) for c in connections.all(initialized_only=True) if c.in_atomic_block]
    with ExitStack() as stack:
        for guard in guards:
            stack.enter_context(guard.connection.execute_wrapper(guard))
        try:
            yield broken
        finally:
            broken += [guard.connection.alias for guard in guards if guard.is_broken_at_end()]


class _Guard:
    """A savepoint, made before the first statement: most code of tests sends none."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._sid: str | None = None
        self._is_begun = False

    def __call__(self, execute: Callable[..., Any], *statement: Any) -> Any:
        if not self._is_begun:
            self._is_begun = True
            self._sid = self.connection.savepoint()
        return execute(*statement)

    def is_broken_at_end(self) -> bool:
        """End the savepoint; return whether what came after it is rolled back."""
        if self._sid is None or self.connection.closed_in_transaction:
            return False
        broken = self.connection.needs_rollback or is_aborted(self.connection)
        self.connection.needs_rollback = False
        end = self.connection.savepoint_rollback if broken else self.connection.savepoint_commit
        end(self._sid)
        return bool(broken)
