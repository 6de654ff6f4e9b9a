"""Visits of a queue in the shards of an instance, each of which is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from django.db import Error, connections
from django.db.models import QuerySet

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.answering import ANSWER_SECONDS
from hipq_django.database.errors import is_locked_out, is_outage
from hipq_django.database.locks import locked
from hipq_django.domain.shares import DUE_JOBS, ZERO, FirstDue, Holding, Visit
from hipq_django.models import Queue, Transfer
from hipq_django.models.catalog import queue_of

T = TypeVar("T")


class SilentShardError(Exception):
    """A shard does not answer, or somebody keeps its queue locked."""

    def __init__(self, alias: str, *, is_locked: bool) -> None:
        super().__init__(f"{alias} does not answer")
        self.alias = alias
        self.is_locked = is_locked


@dataclass(frozen=True, slots=True)
class ShardedQueue:
    """A queue in all shards of the map."""

    config: InstanceSettings
    name: str
    aliases: Sequence[str]
    """By the numbers of the shards."""

    def visit(
        self, visit: Visit, transaction: Callable[[str], AbstractContextManager[None]]
    ) -> Any:
        """Make a visit in a transaction of its own, and return its result.

        Raise `SilentShardError` if the shard does not answer in time; the transaction says how
        long a lock is waited for.
        """
        alias = self.aliases[visit.shard]
        with telling_silence(alias), transaction(alias):
            row = self._locked(alias)
            now = clock.now(alias)
            before = _holding(row, visit.shard, len(self.aliases), now)
            after, result = visit.change(before, now)
            if after != before:
                _write(row, before, after)
        return result

    def is_known(self) -> bool:
        """Return whether the setting, or one of the shards, has such a queue."""
        return self.name in self.config.queues or any(map(self._has_row, self.aliases))

    def _has_row(self, alias: str) -> bool:
        with telling_silence(alias):
            return self._rows(alias).exists()

    def _rows(self, alias: str) -> QuerySet[Queue]:
        return Queue.objects.using(alias).filter(instance=self.config.name, name=self.name)

    def _locked(self, alias: str) -> Any:
        """Lock the queue's row, and create it where no job has needed it yet.

        Nothing else is read by this statement. One that has waited for a lock sees the row as it is
        then, but all others as they were before.
        """
        rows = locked(self._rows(alias))
        row = rows.first()
        if row is None:
            queue_of(self.config.on(alias), self.name)
            row = rows.get()
        return row


def make_all(visits: Generator[Visit, Any, T], make: Callable[[Visit], Any]) -> T:
    """Make visits one after the other, and return what their generator returns."""
    result = None
    while True:
        try:
            visit = visits.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns
        result = make(visit)


@contextmanager
def telling_silence(alias: str) -> Iterator[None]:
    """Raise `SilentShardError` if a shard does not answer in the block."""
    _notice_silence(alias)
    try:
        yield
    except Error as error:
        is_locked = is_locked_out(error)
        if is_outage(error):
            connections[alias].close()
        elif not is_locked:
            raise
        raise SilentShardError(alias, is_locked=is_locked) from error


def _notice_silence(alias: str) -> None:
    """Let this thread's connection to a shard, when it is opened, notice soon that it is dead."""
    connection = connections[alias]
    settings = connection.settings_dict
    if connection.connection is None and not settings["OPTIONS"].get("pool"):
        connection.settings_dict = {**settings, "OPTIONS": {**settings["OPTIONS"], **_IMPATIENT}}


_IMPATIENT = {
    "connect_timeout": ANSWER_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": ANSWER_SECONDS,
    "tcp_user_timeout": 1000 * ANSWER_SECONDS,
}
"""Options of libpq."""


def _holding(row: Queue, number: int, count: int, now: datetime) -> Holding:
    whole = row.throttle_limit if row.is_limited else ZERO
    due = [] if row.paused else _first_due(row, now)
    transfers = list(_transfers(row).values_list("peer", "sent", "received"))
    return Holding(
        number,
        count,
        row.throttle_limit,
        share=whole if row.share is None else row.share,
        owed=row.owed,
        owed_to=row.owed_to,
        owed_time=row.owed_time,
        sent={peer: sent for peer, sent, _ in transfers},
        received={peer: received for peer, _, received in transfers},
        running=row.jobs.using(row.using).load(),
        due=sum((job.factor for job in due), ZERO),
        first=next((job for job in due if job.factor), None),  # critical jobs need no share
    )


def _first_due(row: Queue, now: datetime) -> list[FirstDue]:
    jobs = row.jobs.using(row.using).due(now).filter(rank__lte=row.high_water_mark(now))
    fields = ("scheduled_run_time", "id", "throttle_factor")
    return [FirstDue(*job) for job in jobs.order_by("rank", "id").values_list(*fields)[:DUE_JOBS]]


def _write(row: Queue, before: Holding, after: Holding) -> None:
    Queue.objects.using(row.using).filter(pk=row.pk).update(
        throttle_limit=after.limit,
        share=after.share,
        owed=after.owed,
        owed_to=after.owed_to,
        owed_time=after.owed_time,
    )
    counters = _counters(after).items() - _counters(before).items()
    rows = [Transfer(queue=row, peer=p, sent=s, received=r) for p, (s, r) in sorted(counters)]
    names = ["sent", "received"]
    _transfers(row).bulk_create(
        rows, update_conflicts=True, unique_fields=["queue", "peer"], update_fields=names
    )


def _transfers(row: Queue) -> Any:
    return Transfer.objects.using(row.using).filter(queue=row)


def _counters(own: Holding) -> dict[int, tuple[Decimal, Decimal]]:
    peers = own.sent.keys() | own.received.keys()
    return {peer: (own.sent.get(peer, ZERO), own.received.get(peer, ZERO)) for peer in peers}
