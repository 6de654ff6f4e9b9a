"""Gives waiting jobs new ranks after the order of their queue was changed.

Workers do it page by page, so that neither the operator's request nor the queue stands still; the
queue's row says behind which job they go on. Some jobs keep a rank of the former order: their rows
were locked, or their rank was written by somebody who had read the former order and committed
later. `find_strays` finds those that would wait forever.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.db import transaction
from django.db.models import OuterRef, Subquery

from hipq_django import transitions
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.ordering import HELD_RANK
from hipq_django.models import Job, Queue

PAGE_SIZE = 500
"""How many jobs get their ranks in one transaction, whose locks others meet."""
SLICE_SECONDS = 0.25
"""How long it goes on before the other duties have their turn."""


def continue_ranking(config: InstanceSettings) -> int:
    """Spend a moment on new ranks after an order was changed; return how many ranks changed."""
    ends = time.monotonic() + SLICE_SECONDS
    queues = Queue.objects.using(config.database).filter(instance=config.name).order_by("pk")
    return sum(_rank_until(ends, queue) for queue in queues if not queue.is_ranked)


def rank_ahead(queue: Queue) -> None:
    """Spend a moment on new ranks before jobs are claimed from a queue whose order was changed.

    If there are not very many jobs, all get their new ranks.
    """
    _rank_until(time.monotonic() + SLICE_SECONDS, queue)


def _rank_until(ends: float, queue: Queue) -> int:
    changed = 0
    while (count := _rank_page(queue.pk, queue.using)) is not None:
        changed += count
        if time.monotonic() >= ends:
            break
    return changed


def find_strays(config: InstanceSettings) -> int:
    """Begin again where the last job of a queue has a rank of a former order; return how often.

    Ranks of another order are either lower than all of this one, and such a job runs too soon, or
    higher than all, and it would wait forever.
    """
    using = config.database
    waiting = Job.objects.using(using).filter(queue=OuterRef("pk"), rank__lt=HELD_RANK).waiting()
    last = Subquery(waiting.order_by("-rank", "-id").values("pk")[:1])
    queues = Queue.objects.using(using).filter(instance=config.name)
    lasts = [row.last for row in queues.annotate(last=last) if row.last and row.is_ranked]
    jobs = Job.objects.using(using).filter(pk__in=lasts).select_related("queue")
    wrong = [job.queue_id for job in jobs if job.rank != _wanted_rank(job, job.queue)]
    if not wrong:
        return 0
    with worker_transaction(using):
        free = [queue.pk for queue in locked(queues.filter(pk__in=wrong), skip_locked=True)]
        return int(queues.filter(pk__in=free).update(ranking={}))


def _wanted_rank(job: Job, queue: Queue) -> int:
    return queue.ordering.rank(job.scheduled_run_time, job.priority)


def _rank_page(pk: int, using: str) -> int | None:
    """Rank the next jobs of a queue; return how many changed, None where there is no need now."""
    with worker_transaction(using):
        rows = Queue.objects.using(using).filter(pk=pk)
        queue = locked(rows, skip_locked=True).first()
        if queue is None or queue.is_ranked:
            return None
        wanted = queue.ordering.as_ranking()
        after = queue.ranking.get("after", 0) if queue.ranking.items() > wanted.items() else 0
        jobs = queue.jobs.using(using).waiting().filter(hold_time=None, pk__gt=after).order_by("pk")
        page = list(jobs[:PAGE_SIZE])
        changed = _rank(page, queue)
        is_last = len(page) < PAGE_SIZE
        rows.update(ranking=wanted if is_last else {**wanted, "after": page[-1].pk})
    return changed


def _rank(page: Sequence[Job], queue: Queue) -> int:
    """Rank the jobs of a page; return how many changed.

    Only rows that change are locked. Rows that others have locked are skipped, because waiting
    here would make all admissions to the queue wait too; so are rows that the database refuses.
    """
    wrong = [job.pk for job in page if job.rank != _wanted_rank(job, queue)]
    rows = queue.jobs.using(queue.using).waiting().filter(pk__in=wrong).order_by("pk")
    by_id = {job.pk: job for job in locked(rows, skip_locked=True)} if wrong else {}

    def rank(ids: Sequence[int]) -> int:
        with transaction.atomic(using=queue.using):
            return transitions.rank([by_id[pk] for pk in ids], queue.ordering, queue.using)

    return Isolation("continue_ranking").move(list(by_id), rank)
