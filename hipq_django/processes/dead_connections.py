"""Finds the connections on which handlers wait for an answer that will never come.

A connection that went dead without a word lets a handler wait for hours, and its thread with it.
Whether it is dead, or only the statement long, the server knows: it takes the session for idle.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from django.db import connections

from hipq_django.database.clock import steady
from hipq_django.processes.own_connections import shut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("hipq_django")

_ACTIVE = 1
"""libpq's word for a session that has been asked something and has not answered."""

_IDLE = """
    SELECT pid FROM pg_stat_activity
    WHERE pid = ANY (%s) AND datname = current_database() AND state LIKE 'idle%%'
        AND state_change < clock_timestamp() - %s * interval '1 second'"""


class _Waiting(NamedTuple):
    connection: BaseDatabaseWrapper
    since: float
    """When a look found it waiting first; each one since then did."""


class DeadConnections:
    """Looks now and then at the connections of handlers to the queue's database.

    Who has waited for an answer all the time for `silence_seconds`, and whom the server has been
    waiting for just as long, is disconnected: the handler gets the error that it should have had.
    Behind a pooler the server knows another session, and nothing is done.
    """

    def __init__(
        self,
        using: str,
        silence_seconds: float,
        of_handlers: Callable[[], Iterable[BaseDatabaseWrapper]],
    ) -> None:
        self._using = using
        self._silence_seconds = silence_seconds
        self._of_handlers = of_handlers
        self._waiting: dict[int, _Waiting] = {}

    def shut(self) -> int:
        """Shut those that are dead; return how many."""
        if connections[self._using].vendor != "postgresql":
            return 0
        now = steady()
        found = {pid: one for one in self._of_handlers() if (pid := self._pid_of(one))}
        self._waiting = {
            pid: self._waiting.get(pid, _Waiting(one, now)) for pid, one in found.items()
        }
        ends = now - self._silence_seconds
        long = [pid for pid, waiting in self._waiting.items() if waiting.since <= ends]
        return sum(self._shut(pid) for pid in self._idle(long))

    def _pid_of(self, connection: BaseDatabaseWrapper) -> int:
        """Return the process id of a session that is to answer, else 0."""
        driver = connection.connection
        if connection.alias != self._using or driver is None:
            return 0
        is_waiting = driver.pgconn.transaction_status == _ACTIVE
        return int(driver.pgconn.backend_pid) if is_waiting else 0

    def _idle(self, pids: list[int]) -> list[int]:
        if not pids:
            return []
        with connections[self._using].cursor() as cursor:
            cursor.execute(_IDLE, [pids, self._silence_seconds])
            return [pid for (pid,) in cursor.fetchall()]

    def _shut(self, pid: int) -> bool:
        connection = self._waiting.pop(pid).connection
        if self._pid_of(connection) != pid or not shut(connection):
            return False
        logger.error(
            "database=%s event=handler_disconnected session=%s: a handler has waited for an answer "
            "for %.0f s, and the server for the handler; the connection is dead, and was closed",
            self._using, pid, self._silence_seconds,
        )  # fmt: skip
        return True
