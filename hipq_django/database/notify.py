"""Wakes idle workers by PostgreSQL's NOTIFY, after the commit and seldom.

A NOTIFY in each insert would make commits wait for each other. So each process sends at most one
in a while for each queue, and a worker that was woken probes often for as long as that may be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from django.db import Error, connections, transaction

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.database.errors import in_one_line

SHORTEST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.4
"""How long a process keeps quiet about a queue after it woke the workers; longer in a burst."""

_NOTIFY = """
    SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, name)
    FROM hipq_queue WHERE id = %s"""
"""A transaction of its own, of which nothing need outlive a crash: so it waits for no disk."""


def channel_of(instance: str) -> str:
    """Return the channel on which workers of an instance listen; at most 63 characters."""
    return f"hipq_{instance}"[:63]


def wake_workers(instance: str, queues: Iterable[int], using: str) -> None:
    """Once the current transaction is committed, wake workers that wait for work of the queues.

    The queues of an instance are given by their ids. Does nothing on other databases than
    PostgreSQL, or where the setting NOTIFY is off.
    """
    if connections[using].vendor != "postgresql" or not get_instance(instance).notify:
        return
    for queue in set(queues):
        transaction.on_commit(partial(_notify, instance, queue, using), using=using)


@dataclass(slots=True)
class _Debounce:
    """How long this process keeps quiet about one queue, and whether it had something to say."""

    until: float
    seconds: float
    suppressed: bool = False


_pauses: dict[tuple[str, int], _Debounce] = {}


def _notify(instance: str, queue: int, using: str) -> None:
    if not _may_notify((using, queue), time.monotonic()):
        return
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(_NOTIFY, [channel_of(instance), queue])
    except Error as error:  # the job is committed: its enqueue must not fail any more
        events.warning("workers_not_woken", in_one_line(error), queue_id=queue)


def _may_notify(key: tuple[str, int], now: float) -> bool:
    """Whether the pause is over; the next one is twice as long if this one hid anything."""
    pause = _pauses.get(key)
    if pause is not None and now < pause.until:
        pause.suppressed = True
        return False
    seconds = SHORTEST_PAUSE_SECONDS
    if pause is not None and pause.suppressed:
        seconds = min(2 * pause.seconds, LONGEST_PAUSE_SECONDS)
    _pauses[key] = _Debounce(now + seconds, seconds)
    return True
