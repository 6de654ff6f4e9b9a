"""Wakes idle workers by PostgreSQL's NOTIFY, after the commit and seldom.

A NOTIFY in each insert would make commits wait for each other. So each process sends only one per
interval and queue, and a worker that was woken probes often during that interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.database.errors import in_one_line
from hipq_django.database.kinds import engine_kind

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.4
"""How long a process sends nothing about a queue after it woke the workers; longer in a burst."""

_NOTIFY = """
    SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, name)
    FROM hipq_queue WHERE id = %s"""
"""A separate transaction that need not survive a crash, so it does not wait for the disk."""


def has_messages(using: str) -> bool:
    """Return whether the database carries messages between its clients."""
    return engine_kind(using) == "postgresql"


def listen(connection: BaseDatabaseWrapper, instance: str) -> None:
    """Let a connection get the messages to the workers of an instance."""
    with connection.cursor() as cursor:
        cursor.execute(f'LISTEN "{channel_of(instance)}"')


def send(connection: BaseDatabaseWrapper, instance: str, message: str) -> None:
    """Send a message to the workers of an instance that listen."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [channel_of(instance), message])


def channel_of(instance: str) -> str:
    """Return the channel on which workers of an instance listen; at most 63 characters."""
    return f"hipq_{instance}"[:63]


def wake_workers(instance: str, queues: Iterable[int], using: str) -> None:
    """After the commit of the current transaction, wake workers that wait for jobs of the queues.

    The queues of an instance are given by their ids. Does nothing if the setting NOTIFY is off.
    Called by the engine of PostgreSQL: see `Engine.wake_workers`.
    """
    if not get_instance(instance).notify:
        return
    connection = connections[using]
    for queue in set(queues):
        connection.on_commit(partial(_notify, instance, queue, using))


@dataclass(slots=True)
class _Debounce:
    """How long this process sends nothing about one queue, and whether it suppressed anything."""

    until: float
    seconds: float
    suppressed: bool = False


_debounces: dict[tuple[str, int], _Debounce] = {}


def _notify(instance: str, queue: int, using: str) -> None:
    if not _may_notify((using, queue), time.monotonic()):
        return
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(_NOTIFY, [channel_of(instance), queue])
    except Error as error:  # the job is committed: its enqueue must not fail any more
        events.warning("workers_not_woken", in_one_line(error), queue_id=queue)


def _may_notify(key: tuple[str, int], now: float) -> bool:
    """Whether the pause is over; the next one is twice as long if this one suppressed anything."""
    last = _debounces.get(key)
    if last is not None and now < last.until:
        last.suppressed = True
        return False
    seconds = SHORTEST_PAUSE_SECONDS
    if last is not None and last.suppressed:
        seconds = min(2 * last.seconds, LONGEST_PAUSE_SECONDS)
    _debounces[key] = _Debounce(now + seconds, seconds)
    return True
