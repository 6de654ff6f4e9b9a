"""What stands in queues, counted up to a bound and by one query for all of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import DateTimeField, DecimalField, IntegerField, OuterRef, Subquery

from hipq_django import clock
from hipq_django.admin.base import COUNT_LIMIT
from hipq_django.models import Job, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from hipq_django.models import Queue


class _OverFirst(Subquery):
    """An aggregate over the first rows of a subquery only, however many there are."""

    def __init__(self, aggregate: str, rows: QuerySet[Any], column: str, output: Any) -> None:
        template = f"(SELECT {aggregate} FROM (%(subquery)s) first_rows)"  # noqa: S608 - no input
        rows = rows.values(column)[: COUNT_LIMIT + 1]
        super().__init__(rows, output_field=output, template=template)


def with_figures(queues: QuerySet[Any], now: datetime) -> QuerySet[Any]:
    """Return the queues with `waiting_count`, `due_count`, `running_count`, `error_count`,
    `oldest_due` (the time of the job that has been due longest) and `load`.

    Nothing is counted beyond 10,000 rows; a count of 10,001 means more than 10,000.
    """
    jobs: Any = Job.objects.using(queues.db).filter(queue=OuterRef("pk"))
    by_rank = jobs.due(now).order_by("rank", "id")
    found: QuerySet[Any] = queues.annotate(
        waiting_count=_count(jobs.waiting()),
        due_count=_count(jobs.due(now)),
        running_count=_count(jobs.running()),
        error_count=_count(jobs.in_error()),
        oldest_due=_OverFirst(
            "MIN(scheduled_run_time)", by_rank, "scheduled_run_time", DateTimeField()
        ),
        load=_OverFirst("SUM(throttle_factor)", jobs.running(), "throttle_factor", DecimalField()),
    )
    return found


def _count(rows: QuerySet[Any]) -> _OverFirst:
    return _OverFirst("COUNT(*)", rows, "pk", IntegerField())


def live_workers(using: str) -> list[Worker]:
    """Return the workers that run jobs and whose heart beats."""
    now = clock.now(using)
    workers = Worker.objects.using(using).serving_queues().filter(state=Worker.State.RUNNING)
    return [worker for worker in workers if not is_silent(worker, now)]


def is_silent(worker: Worker, now: datetime) -> bool:
    """Return whether a worker missed so many heartbeats that it is taken for dead."""
    silence = timedelta(seconds=worker.heartbeat_seconds * Worker.LOST_AFTER_BEATS)
    return worker.state in Worker.LIVE and now - worker.heartbeat_time > silence


def is_served(queue: Queue, workers: Sequence[Worker]) -> bool:
    """Return whether one of the workers runs the jobs of a queue."""
    return any(
        worker.instance == queue.instance and (not worker.queues or queue.name in worker.queues)
        for worker in workers
    )
