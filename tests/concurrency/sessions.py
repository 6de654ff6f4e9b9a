"""Threads with a database connection each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from django.db import connection, connections, transaction

T = TypeVar("T")

PATIENCE_SECONDS = 30.0


def run_together(*steps: Callable[[], T]) -> list[T | Exception]:
    """Run the steps at the same moment, each on its own connection.

    Return what each returned or raised, in their order.
    """
    barrier = threading.Barrier(len(steps))

    def run(step: Callable[[], T]) -> T | Exception:
        try:
            barrier.wait(PATIENCE_SECONDS)
            return step()
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(steps)) as pool:
        return list(pool.map(run, steps))


def errors_of(results: Sequence[Any]) -> list[Exception]:
    """Return the results that are exceptions."""
    return [result for result in results if isinstance(result, Exception)]


class Session:
    """A second connection; its steps run one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._transaction: AbstractContextManager[Any] | None = None

    def __call__(self, step: Callable[[], T]) -> T:
        """Run a step and return what it returns; fail where it has to wait for long."""
        return self.start(step).result(PATIENCE_SECONDS)

    def start(self, step: Callable[[], T]) -> Future[T]:
        """Begin a step that may have to wait for a lock."""
        return self._thread.submit(step)

    def begin(self) -> None:
        """Open a transaction that stays open until it is ended."""
        self._transaction = transaction.atomic()
        self(self._transaction.__enter__)

    def commit(self) -> None:
        """Commit the open transaction."""
        self._end(None)

    def roll_back(self) -> None:
        """Roll the open transaction back."""
        self._end(ZeroDivisionError)

    def close(self) -> None:
        """End what is open, and the connection."""
        if self._transaction is not None:
            self.roll_back()
        self(connections.close_all)
        self._thread.shutdown()

    def end_that_of_the_test(self, using: str) -> None:
        """Let the server end the session of the calling thread, as when it is started again."""
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [pid] = cursor.fetchone()
        self(lambda: connection.cursor().execute("SELECT pg_terminate_backend(%s)", [pid]))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self(partial(is_connected, pid)):
            assert time.monotonic() < deadline, "the session does not end"

    def _end(self, error: type[Exception] | None) -> None:
        opened, self._transaction = self._transaction, None
        assert opened is not None
        self(lambda: opened.__exit__(error, error() if error else None, None))


def is_connected(pid: int) -> bool:
    """Whether a session of this PostgreSQL server goes on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", [pid])
        return bool(cursor.fetchone()[0])


def wait_until_blocked(count: int = 1) -> None:
    """Wait until some connections to this PostgreSQL database wait for a lock."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _blocked() < count:
        assert time.monotonic() < deadline, "nobody waits for a lock"


def _blocked() -> int:
    with connection.cursor() as cursor:
        # Inside a transaction the server shows its activity as it was at the first look.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        count: int = cursor.fetchone()[0]
    return count
