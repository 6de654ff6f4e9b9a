"""Gives waiting jobs new ranks after the order of their queue was changed.

Workers do it in small batches, so that neither the operator's request nor the queue stands still;
how far they are is kept on the queue's row. Jobs are looked through twice: an enqueue that had
read the former order may commit after the first time.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import OuterRef, Subquery

from hipq_django import clock, moves
from hipq_django.database import locked, worker_transaction
from hipq_django.models import Job, Queue
from hipq_django.ranking import Order, Ordering

if TYPE_CHECKING:
    from hipq_django.conf import InstanceSettings

BATCH = 500
SLICE_SECONDS = 0.25
PASSES = 2
SETTLE = timedelta(seconds=60)
"""How long an enqueue may take to commit that had read the former order."""


def continue_ranking(config: InstanceSettings) -> int:
    """Write ranks anew for a moment where an order was changed; return how many changed."""
    using = config.database
    ends = time.monotonic() + SLICE_SECONDS
    changed = 0
    for queue in Queue.objects.using(using).filter(instance=config.name).order_by("pk"):
        goes_on = not queue.is_ranked
        while goes_on:
            goes_on, count = _rank_batch(queue.pk, using)
            goes_on = goes_on and time.monotonic() < ends
            changed += count
    return changed


def find_strays(config: InstanceSettings) -> int:
    """Begin anew where a due job has the rank of a former order after all; return how often.

    It would stand behind the bound at which a look for due jobs stops. One query for all queues
    whose times are equally coarse, because there may be hundreds.
    """
    using, now = config.database, clock.now(config.database)
    queues = Queue.objects.using(using).filter(instance=config.name, order=Order.TIME)
    found = 0
    for seconds in set(queues.values_list("granularity_seconds", flat=True)):
        bound = Ordering(Order.TIME, seconds).last_due_rank(now)
        due = Job.objects.using(using).filter(queue=OuterRef("pk")).due(now)
        # Ordered: in the index of waiting jobs.
        strays = due.filter(rank__gt=bound).order_by("rank", "id").values("pk")
        alike = queues.filter(granularity_seconds=seconds).annotate(stray=Subquery(strays[:1]))
        wrong = [queue.pk for queue in alike if queue.stray and queue.is_ranked]
        found += Queue.objects.using(using).filter(pk__in=wrong).update(ranking={})
    return found


def _rank_batch(pk: int, using: str) -> tuple[bool, int]:
    """Rank the next jobs of a queue; return whether to go on at once, and how many changed."""
    now = clock.now(using)
    with worker_transaction(using):
        rows = Queue.objects.using(using).filter(pk=pk)
        queue = locked(rows, skip_locked=True).first()
        if queue is None or queue.is_ranked:
            return False, 0
        progress = _progress(queue, now)
        if now < datetime.fromisoformat(progress["not_before"]):
            return False, 0
        jobs = queue.jobs.using(using).waiting().filter(pk__gt=progress["after"])
        batch = list(locked(jobs.order_by("pk"))[:BATCH])
        changed = moves.rank(batch, queue.ordering, using)
        if len(batch) == BATCH:
            progress["after"] = batch[-1].pk
        else:
            progress |= {"after": 0, "passes": progress["passes"] + 1}
            progress["not_before"] = (now + SETTLE).isoformat()
        if progress["passes"] == PASSES:
            progress = queue.ordering.as_ranking()
        rows.update(ranking=progress)
    return True, changed


def _progress(queue: Queue, now: datetime) -> dict[str, Any]:
    """Return how far the ranks of this order are, from the beginning where it is a new one."""
    wanted = queue.ordering.as_ranking()
    if queue.ranking.items() > wanted.items():
        return dict(queue.ranking)
    return {**wanted, "after": 0, "passes": 0, "not_before": now.isoformat()}
