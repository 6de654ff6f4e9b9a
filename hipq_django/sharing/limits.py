"""The limit of a queue is changed in all shards, or the sum of their shares is repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial

from hipq_django.conf.instances import InstanceSettings
from hipq_django.conf.options import QUEUE
from hipq_django.database.answering import answering
from hipq_django.database.transactions import bound_lock_waits, bounded_transaction
from hipq_django.domain import shares
from hipq_django.domain.job_options import in_json
from hipq_django.exceptions import ConfigurationError, HipqError
from hipq_django.models import Queue
from hipq_django.models.catalog import never
from hipq_django.models.edits import changes
from hipq_django.sharing.visits import ShardedQueue, SilentShardError, make_all, telling_silence

LOCK_SECONDS = 2
"""How long a change waits for the lock of a queue."""


class LimitNotChangedError(HipqError):
    """The limit stays as it is."""


def change_limit(config: InstanceSettings, queue: str, limit: Decimal | None = None) -> Decimal:
    """Give a queue of a sharded instance a limit; without one, make the shares add up to its own.

    Return it. Jobs that run go on, though they may be more than the new limit lets start. If the
    change is cut off, do it again. Raise `InvalidJobError` for a limit that cannot be, and
    `LimitNotChangedError` if a shard does not answer, or knows no such queue.
    """
    if not config.is_sharded:
        raise ConfigurationError(f"HIPQ[{config.name!r}] has no SHARDS.")
    if limit is not None:
        limit = QUEUE["THROTTLE_LIMIT"].checked(limit)
    try:
        with _alone(config) as count:
            sharded = ShardedQueue(config, queue, config.shards[:count])
            if not sharded.is_known():
                raise LimitNotChangedError(f"Instance {config.name!r} has no queue {queue!r}.")
            visit = partial(sharded.visit, transaction=_patient_transaction)
            return make_all(shares.change_limit(count, limit), visit)
    except SilentShardError as error:
        text = f"The limit of {queue!r} was not changed: {error}."
        raise LimitNotChangedError(text) from error


def follow_setting(config: InstanceSettings, is_reset: Callable[[str], bool] = never) -> None:
    """Change the limits that the setting has changed since this shard was last told.

    One that was edited stays, but for the queues whose names are to be reset. Raise
    `LimitNotChangedError` at the first that cannot be changed.
    """
    if not config.is_sharded:
        return
    rows = Queue.objects.using(config.database).filter(instance=config.name)
    for row in rows.filter(name__in=config.queues):
        limit = config.queue(row.name).throttle_limit
        said = {**row.declared, **in_json({"throttle_limit": limit})}
        values = changes(row, said, is_reset=is_reset(row.name))
        if "throttle_limit" in values:
            change_limit(config, row.name, limit)
        if values:
            rows.filter(pk=row.pk).update(declared=said)


@contextmanager
def _alone(config: InstanceSettings) -> Iterator[int]:
    """Let no other change, and no shard that is added, come between; yield how many shards are.

    The lock is that of shard 0's map, not that of the queue, which claims take. It needs a second
    connection: what is done in shard 0 meanwhile is committed at once.
    """
    lock = "SELECT count FROM hipq_shard WHERE instance = %s FOR UPDATE"
    with ExitStack() as stack:
        with telling_silence(config.shards[0]):
            connection = stack.enter_context(answering(config.shards[0]))
            with connection.cursor() as cursor:
                cursor.execute(lock, [config.name])
                row = cursor.fetchone()
        yield row[0] if row else 1


@contextmanager
def _patient_transaction(using: str) -> Iterator[None]:
    with bounded_transaction(using):
        bound_lock_waits(using, LOCK_SECONDS)
        yield
