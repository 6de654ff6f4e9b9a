"""Deletes runs of schedules past the retention of the queue of their jobs, page by page.

A run also says that its due time is not to be fired or backfilled once more. So what was backfilled
stays as long as its schedule, and what was fired becomes one run, with its first and last due time;
`backfill` makes nothing of these. Whatever a look at the schedule may still come to stays as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import bounded_transaction
from hipq_django.models import Queue, Schedule, ScheduleRun

PAGE_SIZE = 1_000
SHOWN_FOR, SHOWN = timedelta(days=14), 100
"""The admin shows the runs of a fortnight, but no more than so many: these stay in any case."""

MERGED = "they were pruned"
KIND = ScheduleRun.Kind


def prune_runs(config: InstanceSettings, *, days: float | None, dry_run: bool) -> int:
    """Delete runs past their retention, or older than `days`; return how many, or would be."""
    pruned = 0
    for row, before in _with_old_runs(config, days):
        pruned += _count(row, before) if dry_run else _prune(row, before)
    return pruned


def _with_old_runs(
    config: InstanceSettings, days: float | None
) -> Iterator[tuple[Schedule, datetime]]:
    """Yield schedules that may have old runs, and the moment before which these were made."""
    using, now = config.database, clock.now(config.database)
    queues = Queue.objects.using(using).filter(instance=config.name)
    kept = {queue.name: queue.retention_days if days is None else days for queue in queues}
    if not kept:
        return
    latest = now - timedelta(days=min(kept.values()))
    runs = _prunable(using).filter(schedule=OuterRef("pk"), due_time__lt=latest)
    rows = Schedule.objects.using(using).filter(Exists(runs), instance=config.name)
    for row in rows.select_related("job_type__queue").order_by("pk"):
        usual = row.job_type.queue.name
        yield row, now - timedelta(days=kept.get(row.options.get("queue", usual), kept[usual]))


def _prunable(using: str) -> Any:
    is_merged = Q(kind=KIND.FIRED, until__isnull=False)
    return ScheduleRun.objects.using(using).exclude(is_merged).exclude(kind=KIND.BACKFILLED)


def _old(row: Schedule, before: datetime) -> Any:
    """Return the runs of a schedule that nobody needs; the last one is none of them."""
    runs = row.runs.order_by("-due_time")
    last = runs.values_list("due_time", flat=True).first() or before
    bound = min(before, last, row.next_time or before, _shown_from(row, before))
    old = _prunable(row.using).filter(schedule=row)
    return old.filter(due_time__lt=bound, create_time__lt=before)


def _shown_from(row: Schedule, before: datetime) -> datetime:
    """Return the due time from which the admin shows runs."""
    fortnight = clock.now(row.using) - SHOWN_FOR
    if before <= fortnight:
        return before
    shown = row.runs.filter(due_time__gt=fortnight).order_by("-due_time")
    first: datetime | None = shown.values_list("due_time", flat=True)[SHOWN - 1 : SHOWN].first()
    return first or fortnight


def _count(row: Schedule, before: datetime) -> int:
    old = _old(row, before)
    becomes_merged = _merged(row) is None and old.filter(kind=KIND.FIRED).exists()
    return int(old.count()) - becomes_merged


def _prune(row: Schedule, before: datetime) -> int:
    deleted = 0
    while (number := _prune_page(row, before)) is not None:
        deleted += number
    return deleted


def _prune_page(row: Schedule, before: datetime) -> int | None:
    """Delete the oldest runs; return how many, or None where there are none left.

    A schedule that others have locked is left to the next time.
    """
    using = row.using
    with bounded_transaction(using):
        rows = Schedule.objects.using(using).filter(pk=row.pk)
        now = locked(rows, skip_locked=True).first()
        page = [] if now is None else list(_old(now, before).order_by("due_time", "pk")[:PAGE_SIZE])
        if not page:
            return None
        ids = {run.pk for run in page} - {_merge(row, [r for r in page if r.kind == KIND.FIRED])}
        deleted, _ = ScheduleRun.objects.using(using).filter(ids_in("pk", ids)).delete()
    return deleted


def _merge(row: Schedule, fired: list[ScheduleRun]) -> int | None:
    """Let one run stand for those that were fired; return its id."""
    if not fired:
        return None
    merged = _merged(row)
    number = len(fired) if merged is None else merged.count + len(fired)
    merged = merged or fired[0]
    merged.until, merged.count = fired[-1].due_time, number
    merged.reason, merged.job_id = MERGED, None
    merged.save(using=row.using, update_fields=["until", "count", "reason", "job_id"])
    return merged.pk


def _merged(row: Schedule) -> ScheduleRun | None:
    return row.runs.filter(kind=KIND.FIRED, until__isnull=False).first()
