"""Deletes what is finished and old enough, in small batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import bounded_transaction
from hipq_django.models import Answer, Attempt, Job, Queue

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
    for queue in list(Queue.objects.using(using).filter(instance=config.name)):
        kept = timedelta(days=queue.retention_days if days is None else days)
        jobs = queue.jobs.using(using).final().filter(update_time__lt=now - kept)
        counts[queue.name] = jobs.count() if dry_run else _delete(jobs, "update_time")
    kept = timedelta(days=config.answer_retention_days if days is None else days)
    answers = Answer.objects.using(using).filter(
        instance=config.name, job=None, receive_time__lt=now - kept
    )
    answers = answers.exclude(status=Answer.Status.EARLY)
    counts["answers"] = answers.count() if dry_run else _delete(answers, "pk")
    return counts


def _delete(old: Any, field: str) -> int:
    """Delete rows in the order of a field, batch by batch; return how many."""
    deleted = 0
    while values := _delete_batch(old, field):
        deleted += len(values)
        # Else each batch would begin with the dead entries of all before it.
        old = old.filter(**{f"{field}__gte": values[-1]})
    return deleted


def _delete_batch(old: Any, field: str) -> list[Any]:
    """Delete the first rows in the order of a field; return its values. Children go first.

    What somebody else holds is left: another pruner, or an operator who is matching an answer to a
    job just now.
    """
    using = old.db
    with bounded_transaction(using):
        rows = locked(old.order_by(field), skip_locked=True, to_delete=True)
        batch = list(rows.values_list("pk", field)[:BATCH])
        ids = [pk for pk, _ in batch]
        if ids and old.model is Job:
            _raw_delete(Attempt.objects.using(using).filter(job__in=ids))
            _raw_delete(Answer.objects.using(using).filter(job__in=ids))
        if ids:
            _raw_delete(old.model.objects.using(using).filter(pk__in=ids))
    return [value for _, value in batch]


def _raw_delete(rows: Any) -> None:
    """Delete in one statement; the rows that name these are deleted by the caller."""
    rows._raw_delete(rows.db)
