"""Deletes what is finished and old enough, in small batches."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import bounded_transaction
from hipq_django.models import Answer, Attempt, Queue

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.conf.instances import InstanceSettings

BATCH = 1_000


def prune(
    config: InstanceSettings, *, days: float | None = None, dry_run: bool = False
) -> dict[str, int]:
    """Delete final jobs past the retention of their queue, with their attempts and answers, and
    answers that no job has past ANSWER_RETENTION_DAYS.

    An early answer stays until its time to live is over. `days` overrides all of these. Return
    how many jobs of each queue were deleted, or would be; "answers" counts those without a job.
    """
    using, now = config.database, clock.now(config.database)
    counts: dict[str, int] = {}
    queues = list(Queue.objects.using(using).filter(instance=config.name))
    for queue in queues:
        kept = timedelta(days=queue.retention_days if days is None else days)
        counts[queue.name] = _prune_queue(queue, now - kept, dry_run)
    kept = timedelta(days=config.answer_retention_days if days is None else days)
    counts["answers"] = _prune_answers(config, now - kept, dry_run)
    return counts


def _prune_queue(queue: Queue, before: datetime, dry_run: bool) -> int:
    old = queue.jobs.using(queue.using).final().filter(update_time__lt=before)
    if dry_run:
        return old.count()
    deleted = 0
    while moments := _delete_batch(queue, old):
        deleted += len(moments)
        # Else each batch would begin with the dead entries of all before it.
        old = old.filter(update_time__gte=moments[-1])
    return deleted


def _delete_batch(queue: Queue, old: Any) -> list[datetime]:
    """Delete the oldest rows, children first; return their last moments, in order.

    What another pruner holds is left to it.
    """
    using = queue.using
    with bounded_transaction(using):
        rows = locked(old.order_by("update_time"), skip_locked=True, to_delete=True)
        batch = list(rows.values_list("pk", "update_time")[:BATCH])
        ids = [pk for pk, _ in batch]
        if ids:
            _raw_delete(Attempt.objects.using(using).filter(job__in=ids))
            _raw_delete(Answer.objects.using(using).filter(job__in=ids))
            _raw_delete(queue.jobs.using(using).filter(pk__in=ids))
        return [moment for _, moment in batch]


def _prune_answers(config: InstanceSettings, before: datetime, dry_run: bool) -> int:
    answers = Answer.objects.using(config.database).filter(
        instance=config.name, job=None, receive_time__lt=before
    )
    old = answers.exclude(status=Answer.Status.EARLY)
    if dry_run:
        return int(old.count())
    deleted = 0
    while ids := _delete_answers(old):
        deleted += len(ids)
        old = old.filter(pk__gt=ids[-1])  # as in `_prune_queue`
    return deleted


def _delete_answers(old: Any) -> list[int]:
    """Delete the oldest and return their ids, in order.

    One that an operator is matching to a job just now is left.
    """
    with bounded_transaction(old.db):
        rows = locked(old.order_by("pk"), skip_locked=True, to_delete=True)
        ids = list(rows.values_list("pk", flat=True)[:BATCH])
        if ids:
            _raw_delete(Answer.objects.using(old.db).filter(pk__in=ids))
        return ids


def _raw_delete(rows: Any) -> None:
    """Delete in one statement; the rows that name these are deleted by the caller."""
    rows._raw_delete(rows.db)
