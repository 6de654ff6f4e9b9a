"""Gives waiting jobs new ranks after the order of their queue was changed.

Workers do it page by page, so that neither the operator's request nor the queue stands still;
their progress is stored in the queue's row. They go through the jobs twice, because an enqueue that
had read the former order may commit after the first time. They come back later to a job whose row
is locked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Subquery

from hipq_django import transitions
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.refused_rows import RefusedRows
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.ordering import HELD_RANK, Order, Ordering
from hipq_django.models import Job, Queue

PAGE_SIZE = 500
"""How many jobs get their ranks in one transaction, whose locks others meet."""
SLICE_SECONDS = 0.25
"""How long it goes on before the other duties have their turn."""
PASSES = 2
"""The second finds what was committed with a rank of the former order during the first."""
SETTLE = timedelta(seconds=60)
"""How long an enqueue that had read the former order may take to commit."""

COME_BACK = timedelta(seconds=1)
"""When to try locked rows again."""


def continue_ranking(config: InstanceSettings) -> int:
    """Spend a moment on new ranks after an order was changed; return how many ranks changed."""
    ends = time.monotonic() + SLICE_SECONDS
    queues = Queue.objects.using(config.database).filter(instance=config.name).order_by("pk")
    return sum(_rank_until(ends, queue) for queue in queues if not queue.is_ranked)


def rank_ahead(queue: Queue) -> None:
    """Spend a moment on new ranks before jobs are claimed from a queue whose order was changed.

    If there are not very many jobs, all get their new ranks.
    """
    now = clock.now(queue.using)
    if now >= datetime.fromisoformat(_progress(queue, now)["not_before"]):
        _rank_until(time.monotonic() + SLICE_SECONDS, queue)


def _rank_until(ends: float, queue: Queue) -> int:
    changed = 0
    while (count := _rank_page(queue.pk, queue.using)) is not None:
        changed += count
        if time.monotonic() >= ends:
            break
    return changed


def find_strays(config: InstanceSettings) -> int:
    """Begin again if a waiting job still has the rank of a former order; return how often.

    Its enqueue was committed later than expected.
    """
    wrong = [*_above_high_water_mark(config), *_last_of_all(config)]
    if not wrong:
        return 0
    queues = Queue.objects.using(config.database)
    with worker_transaction(config.database):
        free = locked(queues.filter(pk__in=wrong), skip_locked=True)
        ranked = [queue.pk for queue in free if queue.is_ranked]
        return int(queues.filter(pk__in=ranked).update(ranking={}))


def _above_high_water_mark(config: InstanceSettings) -> list[int]:
    """Return the queues in the order of time with a due job where a look for due ones stops.

    One query for all queues whose times are equally coarse, because there may be hundreds.
    """
    using, now = config.database, clock.now(config.database)
    queues = Queue.objects.using(using).filter(instance=config.name, order=Order.TIME)
    found: list[int] = []
    for seconds in set(queues.values_list("granularity_seconds", flat=True)):
        mark = Ordering(Order.TIME, seconds).high_water_mark(now)
        due = Job.objects.using(using).filter(queue=OuterRef("pk")).due(now)
        # Ordered: in the index of waiting jobs.
        strays = due.filter(rank__gt=mark).order_by("rank", "id").values("pk")
        alike = queues.filter(granularity_seconds=seconds).annotate(stray=Subquery(strays[:1]))
        found += [queue.pk for queue in alike if queue.stray and queue.is_ranked]
    return found


def _last_of_all(config: InstanceSettings) -> list[int]:
    """Return the queues in the other orders whose last job is there by the rank of another order.

    Ranks of another order are either lower than all of this one, and such a job runs too soon, or
    higher than all, and it would wait for ever.
    """
    using = config.database
    waiting = Job.objects.using(using).filter(queue=OuterRef("pk"), rank__lt=HELD_RANK).waiting()
    last = Subquery(waiting.order_by("-rank", "-id").values("pk")[:1])
    queues = Queue.objects.using(using).filter(instance=config.name).exclude(order=Order.TIME)
    lasts = [row.last for row in queues.annotate(last=last) if row.last and row.is_ranked]
    jobs = Job.objects.using(using).filter(pk__in=lasts).select_related("queue")
    return [job.queue_id for job in jobs if job.rank != _wanted_rank(job, job.queue)]


def _wanted_rank(job: Job, queue: Queue) -> int:
    return queue.ordering.rank(job.scheduled_run_time, job.priority)


def _rank_page(pk: int, using: str) -> int | None:
    """Rank the next jobs of a queue; return how many changed, None where there is no need now."""
    now = clock.now(using)
    with worker_transaction(using):
        rows = Queue.objects.using(using).filter(pk=pk)
        queue = locked(rows, skip_locked=True).first()
        if queue is None or queue.is_ranked:
            return None
        progress = _progress(queue, now)
        if now < datetime.fromisoformat(progress["not_before"]):
            return None
        changed = _rank_next(queue, progress, now)
        is_done = progress["passes"] == PASSES
        rows.update(ranking=queue.ordering.as_ranking() if is_done else progress)
    return changed


def _rank_next(queue: Queue, progress: dict[str, Any], now: datetime) -> int:
    """Rank the jobs behind those that were ranked, and note how far it is now.

    Only rows that change are locked, and rows that others have locked are left for later: waiting
    here would make all admissions to the queue wait too.
    """
    jobs = queue.jobs.using(queue.using).waiting().filter(hold_time=None).order_by("pk")
    page = list(jobs.filter(pk__gt=progress["after"])[:PAGE_SIZE])
    wrong = [job.pk for job in page if job.rank != _wanted_rank(job, queue)]
    free = list(locked(jobs.filter(pk__in=wrong), skip_locked=True)) if wrong else []
    changed, ranked = _rank(free, queue)
    left = jobs.filter(pk__in=set(wrong) - ranked).first()
    if left and not progress["again"]:
        progress["again"] = left.pk
    if len(page) == PAGE_SIZE:
        progress["after"] = page[-1].pk
    elif progress["again"]:
        not_before = (now + COME_BACK).isoformat()
        progress |= {"after": progress["again"] - 1, "again": 0, "not_before": not_before}
    else:
        not_before = (now + SETTLE).isoformat()
        progress |= {"after": 0, "passes": progress["passes"] + 1, "not_before": not_before}
    return changed


def _rank(jobs: Sequence[Job], queue: Queue) -> tuple[int, set[int]]:
    """Rank locked jobs; return how many changed, and the ids of those that are done.

    One that the database does not let be ranked stays where it is; one whose trigger waits for a
    lock is not done.
    """
    by_id, refused = {job.pk: job for job in jobs}, RefusedRows("continue_ranking")

    def rank(ids: Sequence[int]) -> int:
        with transaction.atomic(using=queue.using):
            return transitions.rank([by_id[pk] for pk in ids], queue.ordering, queue.using)

    changed = refused.move(list(by_id), rank)
    return changed, by_id.keys() - refused.waiting


def _progress(queue: Queue, now: datetime) -> dict[str, Any]:
    """Return how far the ranks of this order are; for a new order, the beginning."""
    wanted = queue.ordering.as_ranking()
    if queue.ranking.items() > wanted.items():
        return dict(queue.ranking)
    return {**wanted, "after": 0, "passes": 0, "again": 0, "not_before": now.isoformat()}
