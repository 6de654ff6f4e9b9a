"""The database connections of a process: its own threads', and its handlers'."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakSet

from asgiref.sync import SyncToAsync
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.db import Error, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from hipq_django.conf.instances import longest_silence
from hipq_django.database.clock import steady
from hipq_django.database.transactions import LOCK_MILLISECONDS
from hipq_django.signals import call_receivers_in

# The process's own connections: they must not wait for a dead peer.

MIN_SECONDS = 5.0
"""At least this long, however quick the beats are: a busy machine may take long to answer."""
MAX_CONNECT_SECONDS = 10
PROBES = 3

_own: WeakKeyDictionary[BaseDatabaseWrapper, dict[str, Any]] = WeakKeyDictionary()
"""With the settings that they had before."""


def look_after_own(using: str) -> None:
    """Let the process look after this thread's connection to a database."""
    look_after(connections[using])


def look_after(connection: BaseDatabaseWrapper) -> None:
    """Let TCP notice a dead server, unless the project sets the options itself; remember it.

    Only PostgreSQL is reached by a network; the connections of a pool are shared.
    """
    if connection.vendor != "postgresql":
        return
    settings = connection.settings_dict
    _own.setdefault(connection, settings)
    if not settings["OPTIONS"].get("pool"):
        options = {**tcp_options(longest_silence(connection.alias)), **settings["OPTIONS"]}
        connection.settings_dict = {**settings, "OPTIONS": options}


def give_back_own() -> None:
    """Give this thread's connections back to the project, with the project's settings."""
    for connection in connections.all(initialized_only=True):
        settings = _own.pop(connection, None)
        if settings is not None:
            connection.settings_dict = settings
    unbound_waits()


# How long statements of the process's own threads wait for locks of others

_bounded: WeakSet[BaseDatabaseWrapper] = WeakSet()
"""The connections of such threads."""


def bound_waits(using: str) -> None:
    """Let no statement of this thread wait for a lock for longer than `worker_transaction` does.

    It would wait for as long as a migration, or a forgotten session, keeps a table locked. The
    bound is a setting of the session, which costs nothing. It is lifted for receivers of signals:
    they are the project's code, and have no connection of their own.
    """
    connection = connections[using]
    if connection.vendor == "postgresql" and not connection.settings_dict["OPTIONS"].get("pool"):
        _bounded.add(connection)
        call_receivers_in(unbounded)
        connection_created.connect(_bound_new, dispatch_uid=__name__)
        with suppress(Error):
            _bound(connection)


def unbound_waits() -> None:
    """Let statements of this thread wait again as the project has it."""
    for connection in connections.all(initialized_only=True):
        if connection in _bounded:
            _bounded.discard(connection)
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
    _bounded.discard(connection)
    try:
        with connection.execute_wrapper(lift):
            yield
    finally:
        _bounded.add(connection)
        if lift.is_done or connection.connection is not driver:
            with suppress(Error):
                _bound(connection)


class _Lift:
    """Lifts the bound of a session before the first statement."""

    is_done = False

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        if not self.is_done:
            self.is_done = True
            with arguments[-1]["connection"].cursor() as cursor:
                cursor.execute(_NO_BOUND)
        return execute(*arguments)


_NO_BOUND = "RESET lock_timeout"


def _bound_new(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection in _bounded:
        _bound(connection)


def _bound(connection: Any) -> None:
    """Bound the waits of a connection that is open, unless a pooler gives others its session.

    If that fails, the connection is closed: its next use opens it anew.
    """
    if connection.connection is None:
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT set_config('lock_timeout', '{LOCK_MILLISECONDS}', false) "
                "WHERE pg_backend_pid() = %s",  # a pooler gives the client another number
                [connection.connection.pgconn.backend_pid],
            )
    except Error:
        connection.close()
        raise


def tcp_options(silence_seconds: float) -> dict[str, Any]:
    """Return libpq's options by which a connection notices within a silence that it is dead.

    A Unix socket ignores all but the first.
    """
    seconds = max(silence_seconds, MIN_SECONDS)
    beat = ceil(seconds / PROBES)
    return {
        "connect_timeout": min(ceil(seconds), MAX_CONNECT_SECONDS),
        "keepalives": 1,
        "keepalives_idle": beat,
        "keepalives_interval": max(1, beat // PROBES),
        "keepalives_count": PROBES,
        "tcp_user_timeout": ceil(seconds * 1000),
    }


def shut_all() -> int:
    """Shut the sockets of all own connections, which wakes threads that wait; return how many.

    Called from another thread: each thread sees it as if the server were gone.
    """
    # Not the keys themselves: their number may change while threads open connections.
    own = [connection() for connection in _own.keyrefs()]
    return sum(shut(one) for one in own if one is not None)


def shut(connection: BaseDatabaseWrapper) -> bool:
    """Shut the socket of a connection of another thread; return whether there was one."""
    try:
        # A copy of the descriptor: the driver closes its own when it likes.
        with socket.socket(fileno=os.dup(connection.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
    except Exception:  # there is none, or its thread is closing it just now
        return False
    return True


IDLE_SECONDS = 0.9
"""A connection that was not used for longer is looked at first; each poll is a use."""

_used: WeakKeyDictionary[BaseDatabaseWrapper, float] = WeakKeyDictionary()


def renew_broken(using: str) -> None:
    """Let this thread use no connection that broke since it was last used, for any reason.

    The server, a pooler or a router may end sessions that are idle: that is no outage. So Django
    looks at the process's own connection before the first statement. The others only the project's
    code queries: throttlers, receivers, sources and map functions. What they raise may be caught,
    and Django opens a connection anew only after it was closed, which it does around a request.
    """
    for connection in connections.all(initialized_only=True):
        if connection.alias != using and connection.errors_occurred:
            connection.close_if_unusable_or_obsolete()
    now, own = steady(), cast(Any, connections[using])  # the stubs lack how it is checked
    if now - _used.get(own, now) > IDLE_SECONDS:
        own.health_check_enabled, own.health_check_done = True, False
    _used[own] = now


# Handlers' connections, which are the project's

_WITHOUT_TRANSACTION = (0, 4)
"""libpq's words for a session that is idle, and for one that is broken."""


def close_old(own: Sequence[BaseDatabaseWrapper]) -> None:
    """Do with a thread's connections what Django does around a request; cheap if none is open."""
    for connection in own:
        if connection.connection is not None:
            connection.close_if_unusable_or_obsolete()


class _OfThread(threading.local):
    caches: Sequence[BaseCache] = ()
    """Those that are to be closed after each job."""


_of_thread = _OfThread()


def open_caches() -> None:
    """Open the caches for this thread; else each job, with its own context, would open some."""
    with suppress(Exception):  # of a backend that nobody may ever use
        opened = caches.all()
        _of_thread.caches = [c for c in opened if type(c).close is not BaseCache.close]


class _Opened(WeakSet[BaseDatabaseWrapper]):
    """The connections that a thread has opened."""

    def __del__(self) -> None:
        for connection in self:
            with suppress(Exception):  # the process may be ending
                connection.close()


def close_with_thread(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Close a connection, which was just opened, when this thread ends.

    Django's own is part of a cycle, so it would stay open until Python looks for cyclic garbage. A
    handler that starts threads could use up the server's connections until then.
    """
    vars(_of_thread).setdefault("opened", _Opened()).add(connection)


def close_old_of_loops() -> None:
    """Close the old connections of handlers that begin a loop of their own, as by `asyncio.run`.

    asgiref sends what they ask the database in one thread of the process, in which nobody else
    closes any.
    """
    executor = SyncToAsync.single_thread_executor
    if executor._threads:  # else no handler has used it, as in most processes
        with suppress(RuntimeError):  # the process is ending
            executor.submit(close_old_connections)


def end_transactions_and_close_old(own: Sequence[BaseDatabaseWrapper]) -> list[str]:
    """Roll back what a handler left open; return the aliases of those databases.

    Otherwise the writes of later jobs of the thread would be part of that transaction. The rest is
    what Django does after a request.
    """
    for cache in _of_thread.caches:
        with suppress(Exception):  # a cache that is away fails no job
            cache.close()
    left_open: list[str] = []
    for connection in own:
        if connection.connection is None:
            continue
        if _is_in_transaction(connection):
            left_open.append(connection.alias)
            connection.in_atomic_block = False  # so that it can be opened again
            with suppress(Error):
                connection.close()
        else:
            connection.close_if_unusable_or_obsolete()
    return left_open


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    driver: Any = connection.connection
    if not connection.settings_dict["AUTOCOMMIT"]:
        return False
    if connection.in_atomic_block or not connection.autocommit:
        return True
    if connection.vendor == "postgresql":
        return bool(driver.pgconn.transaction_status not in _WITHOUT_TRANSACTION)
    return bool(getattr(driver, "in_transaction", False))
