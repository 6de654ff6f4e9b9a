"""The connections of a process's own threads, which must not wait for a peer that is gone.

Those of handlers are the project's.
"""

from __future__ import annotations

import os
import socket
from math import ceil
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.db import connections

from hipq_django.conf.instances import longest_silence

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

MIN_SECONDS = 5.0
"""However quick the beats are: a busy machine may take long to answer."""
MAX_CONNECT_SECONDS = 10
PROBES = 3

_own: WeakKeyDictionary[BaseDatabaseWrapper, dict[str, Any]] = WeakKeyDictionary()
"""With the settings that they had before."""


def adopt(using: str) -> None:
    """Make this thread's connection to a database one that the process looks after."""
    look_after(connections[using])


def look_after(connection: BaseDatabaseWrapper) -> None:
    """Let TCP notice when the server is gone, where the project does not say how; remember it.

    Only PostgreSQL is reached by a network; a pool's connections are everybody's.
    """
    if connection.vendor != "postgresql":
        return
    settings = connection.settings_dict
    _own.setdefault(connection, settings)
    if not settings["OPTIONS"].get("pool"):
        options = {**tcp_options(longest_silence(connection.alias)), **settings["OPTIONS"]}
        connection.settings_dict = {**settings, "OPTIONS": options}


def disown_all() -> None:
    """Make this thread's connections the project's again; they open as the project says."""
    for connection in connections.all(initialized_only=True):
        settings = _own.pop(connection, None)
        if settings is not None:
            connection.settings_dict = settings


def tcp_options(silence_seconds: float) -> dict[str, Any]:
    """Return libpq's options by which a connection notices within a silence that it is dead.

    A socket of Unix ignores all but the first.
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
    """End the conversation of all own connections, which wakes who waits in one; return how many.

    Called from another thread than theirs: each learns of it as if the server had gone.
    """
    return sum(shut(connection) for connection in list(_own))


def shut(connection: BaseDatabaseWrapper) -> bool:
    """End the conversation of a connection of another thread; return whether there was one."""
    try:
        # A copy of the descriptor: the driver closes its own when it likes.
        with socket.socket(fileno=os.dup(connection.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
    except Exception:  # there is none, or its thread is closing it just now
        return False
    return True
