"""Deletes final jobs, answers and batches past their retention, a thousand at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import router
from django.db.models import PROTECT, RESTRICT, Exists, OuterRef, Q
from django.db.models.deletion import get_candidate_relations_to_delete

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.errors import SkippedRowError
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import bounded_transaction
from hipq_django.domain.states import Outcome, State
from hipq_django.extensions import registered
from hipq_django.maintenance.schedule_runs import prune_runs
from hipq_django.models import Answer, Attempt, Batch, Job, Link, Queue, Step

PAGE_SIZE = 1_000
"""How many rows are deleted in one transaction: on SQLite it keeps all writers waiting."""

CHILDREN = (Attempt, Answer, Step, Link)
"""What is deleted before the job that it belongs to."""


def prune(
    config: InstanceSettings, *, days: float | None = None, dry_run: bool = False
) -> dict[str, int]:
    """Delete what is past its retention; return how many rows of each kind were, or would be.

    Final jobs, with their attempts and answers, are kept as long as their queue says, and so are
    runs of schedules and batches without jobs; answers without a job for ANSWER_RETENTION_DAYS, but
    early ones until their time to live is over. `days` overrides all of these. Jobs are counted by
    queue; "answers" are those without a job.
    """
    using, now = config.database, clock.now(config.database)
    counts: dict[str, int] = {}
    queues = list(Queue.objects.using(using).filter(instance=config.name))
    for queue in queues:
        jobs = not_needed(past_retention(queue, now, days))
        counts[queue.name] = jobs.count() if dry_run else _delete(jobs, "update_time")
    kept = timedelta(days=config.answer_retention_days if days is None else days)
    answers = Answer.objects.using(using).filter(
        instance=config.name, job=None, receive_time__lt=now - kept
    )
    answers = _unprotected(answers.exclude(status=Answer.Status.EARLY))
    counts["answers"] = answers.count() if dry_run else _delete(answers, "pk")
    counts["schedule runs"] = prune_runs(config, days=days, dry_run=dry_run)
    # The jobs of a batch may be in several queues: all that are gone were past their retention.
    least = min((queue.retention_days for queue in queues), default=0) if days is None else days
    batches = _without_jobs(config).filter(create_time__lt=now - timedelta(days=least))
    counts["batches"] = batches.count() if dry_run else _delete(batches, "pk")
    for extension in registered:
        for name, rows in extension.old_rows(config, days).items():
            counts[name] = rows.count() if dry_run else _delete(rows, "pk")
    return counts


def past_retention(queue: Queue, now: datetime, days: float | None = None) -> Any:
    """Return the final jobs of a queue that are past their retention, or older than `days`."""
    jobs = queue.jobs.using(queue.using).final()
    others = queue.retention_days if days is None else days
    succeeded = queue.retention_days_succeeded if days is None else None
    if succeeded is None:
        return jobs.filter(update_time__lt=now - timedelta(days=others))
    first, last = (now - timedelta(days=kept) for kept in sorted((others, succeeded))[::-1])
    is_success = Q(outcome=Outcome.SUCCEEDED)
    kept_longer = is_success if succeeded > others else ~is_success
    return jobs.filter(update_time__lt=last).exclude(kept_longer, update_time__gte=first)


def not_needed(jobs: Any) -> Any:
    """Return the jobs that no live job waits for, or has waited for: it may ask for their results.

    A batch is needed as a whole. And those that no model of the project protects.
    """
    live = Link.objects.using(jobs.db).exclude(job__state=State.FINAL)
    by_job = live.filter(needs_job=OuterRef("pk"))
    by_batch = live.filter(needs_batch=OuterRef("batch"))
    for extension in registered:
        jobs = jobs.exclude(extension.needed_jobs(jobs.db))
    return _unprotected(jobs.filter(~Exists(by_job), ~Exists(by_batch)))


def _unprotected(rows: Any) -> Any:
    """Leave out what a foreign key of the project keeps by PROTECT or RESTRICT."""
    for relation in foreign_relations(rows.model, rows.db):
        if relation.on_delete in (PROTECT, RESTRICT):
            field = relation.field
            named = relation.related_model._base_manager.using(rows.db)
            target = OuterRef(field.target_field.attname)
            rows = rows.filter(~Exists(named.filter(**{field.attname: target})))
    return rows


def foreign_relations(model: Any, using: str) -> Iterator[Any]:
    """Yield the relations by which models of other apps name rows of one of ours."""
    for relation in get_candidate_relations_to_delete(model._meta):
        other: Any = relation.related_model
        is_own = other._meta.app_label == model._meta.app_label
        if not is_own and router.allow_migrate_model(using, other):
            yield relation


def _without_jobs(config: InstanceSettings) -> Any:
    """Return the batches that no job belongs to, and that no job has waited for."""
    jobs = Job.objects.using(config.database).filter(batch=OuterRef("pk"))
    links = Link.objects.using(config.database).filter(needs_batch=OuterRef("pk"))
    batches = Batch.objects.using(config.database).filter(instance=config.name)
    return _unprotected(batches.filter(~Exists(jobs), ~Exists(links)))


def _delete(old: Any, field: str) -> int:
    """Delete rows in the order of a field, page by page; return how many.

    Rows that the database refuses to delete are left, and named in the log.
    """
    left_alone: Isolation[int] = Isolation("prune", f"{old.model._meta.model_name}_id")
    deleted, seen, rest = 0, set[int](), old
    done: tuple[int, Any] | None = None
    while done is None or done[0]:
        seen |= left_alone.ids  # none of them comes back before the end
        left = rest.exclude(ids_in("pk", seen))
        done = left_alone.together(partial(_delete_page, left, field))
        if done is None:
            page = list(left.order_by(field).values_list("pk", flat=True)[:PAGE_SIZE])
            deleted += left_alone.move(page, partial(_delete_some, left, field))
        elif done[0]:
            deleted += done[0]
            # Else each page would begin with the dead entries of all before it.
            rest = old.filter(**{f"{field}__gte": done[1]})
    return deleted


def _delete_some(old: Any, field: str, ids: Sequence[int]) -> int:
    return _delete_page(old.filter(ids_in("pk", ids)), field)[0]


def _delete_page(old: Any, field: str) -> tuple[int, Any]:
    """Delete the first rows in the order of a field, children first.

    Return how many, and the value of the last one. Rows that others have locked are left: by
    another prune, or by an operator who is just matching an answer to a job.
    """
    using, rows = old.db, old.model.objects.using(old.db)
    with bounded_transaction(using):
        free = locked(old.order_by(field), skip_locked=True, to_delete=True)
        ids = list(free.values_list("pk", flat=True)[:PAGE_SIZE])
        last = rows.filter(pk__in=ids[-1:]).values_list(field, flat=True).first()
        for child in CHILDREN if old.model is Job else ():
            delete_rows(child.objects.using(using).filter(ids_in("job", ids)))
        if delete_rows(rows.filter(ids_in("pk", ids))) < len(ids):
            raise SkippedRowError
    return len(ids), last


def delete_rows(rows: Any) -> int:
    """Delete rows in one statement, return how many; the caller deletes ours that name these.

    Rows of the project's models are left to Django, which knows what becomes of each.
    """
    if any(foreign_relations(rows.model, rows.db)):
        return int(rows.only("pk").delete()[1].get(rows.model._meta.label, 0))
    return int(rows._raw_delete(rows.db) or 0)
