"""Growing: the map becomes what SHARDS says, and no job is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from django.apps import apps
from django.db import OperationalError, transaction
from django.db.models import F, Q

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.answering import MapRow, answers
from hipq_django.database.errors import is_locked_out
from hipq_django.database.locks import locked
from hipq_django.database.sequences import go_on, locked_sequences
from hipq_django.database.transactions import bound_lock_waits
from hipq_django.domain.sharding import MAX_SHARDS, first_id_of_shard, has_moved, key_of_row
from hipq_django.domain.states import NONE
from hipq_django.exceptions import ConfigurationError, ShardError
from hipq_django.models import Job, Queue, ShardMap, Transfer
from hipq_django.models.job import JobQuerySet
from hipq_django.sharding.map import forget, made_of, map_of

Rows = Mapping[str, ShardMap | None]

_OF_A_SHARD = ("id", "share", "owed", "owed_to", "owed_time", "throttler_state")
"""Columns of a queue that each shard has for itself."""


def add(config: InstanceSettings) -> None:
    """Make the map what SHARDS says. It may be called again after it was cut off.

    Each step is a transaction in one database: shard 0 the first time, each new shard, the map of
    the others from the last to shard 0. A lost shard whose alias leads to a new, empty database is
    a new one. Raise `ShardError` if a shard does not answer, or is not empty.
    """
    _check_shards(config, "Nothing was added")
    rows = _stored(config)
    known = next(filter(None, rows.values()), None)
    if known is None:
        _begin(config.on(config.shards[0]))
        rows = _stored(config)
    with _one_at_a_time(config):
        wanted = _wanted(config, rows)
        for number, alias in enumerate(config.shards):
            if rows[alias] is None:
                _join(config, number, wanted, rows)
        _write(config, [alias for alias, row in rows.items() if row is not None], wanted)
    forget()


def settle(config: InstanceSettings) -> None:
    """End the time in which jobs may be where their keys were before the last `add`.

    Raise `ShardError` while live jobs are there.
    """
    forget()
    used = len(map_of(config).shards)
    config = replace(config, shards=config.shards[:used])  # not those that `add` will add
    _check_shards(config, "Nothing was settled")
    rows = _stored(config)
    if None in rows.values():
        raise ShardError(f"instance {config.name!r}: run manage.py hipq_shards add first.")
    with _one_at_a_time(config):
        base = _base(rows)
        left = sum(
            _number_moved(config.on(alias), number, base)
            for number, alias in enumerate(config.shards[: base.count_before])
        )
        if left:
            raise ShardError(f"{left} live jobs are still in their former shard.")
        _write(config, [*rows], MapRow(0, base.count, base.count, base.first_id))
    forget()


# What there is


def _check_shards(config: InstanceSettings, undone: str) -> None:
    if not config.is_sharded:
        raise ConfigurationError(f"HIPQ[{config.name!r}] has no SHARDS.")
    for alias in config.shards:
        if not answers(alias):
            raise ShardError(f"{undone}: {alias} does not answer.")


def _stored(config: InstanceSettings) -> Rows:
    """Return the row of each shard; raise `ShardMapError` if SHARDS does not fit one of them."""
    rows = {
        alias: ShardMap.objects.using(alias).filter(instance=config.name).first()
        for alias in config.shards
    }
    for number, row in enumerate(rows.values()):
        if row is not None:
            made_of(config, number, _of(row))
    return rows


def _of(row: ShardMap) -> MapRow:
    return MapRow(row.number, row.count, row.count_before, row.first_id)


def _base(rows: Rows) -> MapRow:
    """Return what counts: shard 0's row, which is written last; if that was lost, another one."""
    return next(_of(row) for row in rows.values() if row is not None)


def _wanted(config: InstanceSettings, rows: Rows) -> MapRow:
    base, count = _base(rows), len(config.shards)
    if count == base.count:
        return base
    if base.count_before != base.count:
        raise ShardError(
            f"instance {config.name!r} still has jobs in their former shards: run manage.py "
            "hipq_shards settle first."
        )
    is_empty = not any(_has_live(config.on(alias)) for alias in config.shards[: base.count])
    return MapRow(0, count, count if is_empty else base.count, base.first_id)


def _has_live(config: InstanceSettings) -> bool:
    return _jobs(config).live().exists()


def _jobs(config: InstanceSettings) -> JobQuerySet:
    return Job.objects.using(config.database).of_instance(config.name)


def _number_moved(config: InstanceSettings, number: int, base: MapRow) -> int:
    """Return how many live jobs are in this shard whose keys lead to another by now.

    Those of schedules are in shard 0, whatever their keys are.
    """
    has_key = Q(shard_key__isnull=False) | ~Q(job_key=NONE)
    has_key |= Q(waiting_key__isnull=False) | Q(kept_key__isnull=False)
    live = _jobs(config).live().filter(has_key, schedule_id=None)
    keys = live.values_list("shard_key", "job_key", "waiting_key", "kept_key")
    return sum(
        has_moved(key_of_row(*each), number, base.count_before, base.count)
        for each in keys.iterator()
    )


# What is written


@contextmanager
def _writing(using: str) -> Iterator[None]:
    """Open a transaction that waits half a second for a lock, so that nobody waits behind it."""
    try:
        with transaction.atomic(using=using):
            bound_lock_waits(using, 0.5)
            yield
    except OperationalError as error:
        if is_locked_out(error):
            text = f"database {using!r} is in use: try again, or stop the workers."
            raise ShardError(text) from error
        raise


@contextmanager
def _one_at_a_time(config: InstanceSettings) -> Iterator[None]:
    """Hold the lock on shard 0's row of the map, where it has one, until the block ends."""
    using = config.shards[0]
    with _writing(using):
        locked(ShardMap.objects.using(using).filter(instance=config.name)).first()
        yield


def _begin(config: InstanceSettings) -> None:
    """Let shard 0 be a shard, the only one: from now on its ids name it.

    Another instance may have done so with the same tables; its `first_id` counts for both.
    """
    using = config.database
    with _writing(using):
        queues = Queue.objects.using(using).filter(instance=config.name)
        queues.filter(throttle_limit__gte=1).update(share=F("throttle_limit"))
        queues.filter(throttle_limit__lt=1).update(share=0)
        sequences = locked_sequences(using, _tables())
        others = ShardMap.objects.using(using).values_list("first_id", flat=True)
        first_id = max(others, default=max(sequence.last for sequence in sequences))
        _number_ids(using, 0, first_id)
        ShardMap.objects.using(using).create(
            instance=config.name, number=0, count=1, count_before=1, first_id=first_id
        )


def _tables() -> list[str]:
    return [model._meta.db_table for model in apps.get_app_config("hipq").get_models()]


def _number_ids(using: str, number: int, first_id: int) -> None:
    """Let the ids of all tables name this shard, above `first_id`; they may do so already."""
    for sequence in locked_sequences(using, _tables()):
        if sequence.step != MAX_SHARDS or sequence.last < first_id:
            start = first_id_of_shard(number, max(first_id, sequence.last))
            go_on(using, sequence, start, MAX_SHARDS)


def _join(config: InstanceSettings, number: int, wanted: MapRow, rows: Rows) -> None:
    """Let an empty database be a shard, with nothing of the limits and nothing on its way."""
    using = config.shards[number]
    with _writing(using):
        if _jobs(config.on(using)).exists():
            raise ShardError(
                f"database {using!r} has jobs of instance {config.name!r} already; a new shard is "
                "empty."
            )
        Queue.objects.using(using).filter(instance=config.name).update(share=0)
        for peer, (alias, row) in enumerate(rows.items()):
            if row is not None:
                _take_queues(config.name, using, number, peer, alias)
        _number_ids(using, number, wanted.first_id)
        ShardMap.objects.using(using).create(
            instance=config.name, number=number, count=wanted.count,
            count_before=wanted.count_before, first_id=wanted.first_id,
        )  # fmt: skip


def _take_queues(instance: str, using: str, number: int, peer: int, alias: str) -> None:
    """Take over the queues of another shard, and what it has counted with the shard of before."""
    counters = Transfer.objects.using(alias).filter(peer=number)
    counted = {row.queue_id: row for row in counters}
    for other in Queue.objects.using(alias).filter(instance=instance):
        names = [field.attname for field in Queue._meta.concrete_fields]
        copied = {name: getattr(other, name) for name in names if name not in _OF_A_SHARD}
        own, _ = Queue.objects.using(using).get_or_create(
            instance=instance, name=other.name, defaults={**copied, "share": 0}
        )
        if count := counted.get(other.pk):
            Transfer.objects.using(using).create(
                queue=own, peer=peer, sent=count.received, received=count.sent
            )


def _write(config: InstanceSettings, shards: list[str], wanted: MapRow) -> None:
    """Write the map to shards that have one, from the last to shard 0, by which processes go."""
    for alias in reversed(shards):
        ShardMap.objects.using(alias).filter(instance=config.name).update(
            count=wanted.count, count_before=wanted.count_before
        )
