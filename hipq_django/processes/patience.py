"""No statement of a worker's own threads waits for locks of others without a bound.

Most statements are functions or transactions that bound their waits themselves. The others, such as
the looks of duties, would wait for as long as a migration, or somebody's forgotten session, keeps a
table locked. So the bound is a setting of the session, which costs nothing. Where other clients use
the same session, behind a pooler, each such statement gets a transaction that sets it.

Receivers of signals are the project's code, and wait for locks as the project has it. They have no
connection of their own, so the bound is lifted while they are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from weakref import WeakSet

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from hipq_django.database.transactions import LOCK_MILLISECONDS, worker_transaction
from hipq_django.signals import call_receivers_in

_bounded: WeakSet[BaseDatabaseWrapper] = WeakSet()

_CALL_OF_FUNCTION = re.compile(r"\bhipq_\w+_[0-9a-f]{8}\(")
"""These bound their waits themselves."""


_NO_BOUND = "RESET lock_timeout"


def bound_waits(using: str) -> None:
    """Let no statement of this thread wait for a lock for longer than `worker_transaction` does.

    It fails then, see `is_locked_out`. Also on the connections that the thread opens later: an
    outage at this moment ends nobody.
    """
    connection = connections[using]
    if connection.vendor == "postgresql" and connection not in _bounded:
        _bounded.add(connection)
        call_receivers_in(unbounded)
        connection_created.connect(_bound_new, dispatch_uid=__name__)
        _bound_open(connection)


def unbound_waits() -> None:
    """Let statements of this thread wait again as the project has it."""
    for connection in connections.all(initialized_only=True):
        if connection in _bounded:
            _bounded.discard(connection)
            _forget_transactions(connection)
            if connection.connection is not None:
                with suppress(Error), connection.cursor() as cursor:
                    cursor.execute(_NO_BOUND)


@contextmanager
def unbounded(using: str) -> Iterator[None]:
    """Let the block wait for locks as the project has it; that costs nothing without statements."""
    connection = connections[using]
    if connection not in _bounded:
        yield
        return
    lift, driver = _Lift(), connection.connection
    has_transactions = _in_transaction in connection.execute_wrappers
    _bounded.discard(connection)
    _forget_transactions(connection)
    try:
        with nullcontext() if has_transactions else connection.execute_wrapper(lift):
            yield
    finally:
        _bounded.add(connection)
        if has_transactions:
            connection.execute_wrappers.append(_in_transaction)
        elif lift.place is not None or connection.connection is not driver:
            _bound_open(connection)


class _Lift:
    """Lifts the bound of a session before the first statement.

    In a transaction that would be undone if it is rolled back, so it is done once in each.
    """

    def __init__(self) -> None:
        self.place: object = None
        """Where it was done last: in a transaction, or in the session itself."""

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        connection: Any = context["connection"]
        place = connection.atomic_blocks[0] if connection.in_atomic_block else connection
        if self.place not in (connection, place):
            self.place = place
            with connection.cursor() as cursor:  # the other one may be that of one statement
                cursor.execute(_NO_BOUND)
        return execute(sql, params, many, context)


def _bound_open(connection: BaseDatabaseWrapper) -> None:
    """Bound the waits of a connection, if it is open."""
    if connection.connection is not None:
        try:
            _bound(connection)
        except Error:
            connection.close()


def _bound_new(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection in _bounded:
        _bound(connection)


def _bound(connection: BaseDatabaseWrapper) -> None:
    _forget_transactions(connection)
    is_pooled = bool(connection.settings_dict["OPTIONS"].get("pool"))
    if is_pooled or not _set_for_session(connection):
        connection.execute_wrappers.append(_in_transaction)


def _set_for_session(connection: BaseDatabaseWrapper) -> bool:
    """Set the bound, if this client alone uses the session: a pooler gives it an id of its own."""
    driver: Any = connection.connection
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT set_config('lock_timeout', '{LOCK_MILLISECONDS}', false) "
            "WHERE pg_backend_pid() = %s",
            [driver.pgconn.backend_pid],
        )
        return cursor.fetchone() is not None


def _in_transaction(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    connection: BaseDatabaseWrapper = context["connection"]
    if connection.in_atomic_block or _CALL_OF_FUNCTION.search(sql):
        return execute(sql, params, many, context)
    with worker_transaction(connection.alias):
        return execute(sql, params, many, context)


def _forget_transactions(connection: BaseDatabaseWrapper) -> None:
    if _in_transaction in connection.execute_wrappers:
        connection.execute_wrappers.remove(_in_transaction)
