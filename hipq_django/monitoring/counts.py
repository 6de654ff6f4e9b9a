"""What stands in queues, counted up to a bound and by one query for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import (
    BigIntegerField,
    Case,
    DateTimeField,
    DecimalField,
    IntegerField,
    OuterRef,
    Subquery,
    Value,
    When,
)

from hipq_django.database import clock
from hipq_django.domain.ordering import MAX_RANK
from hipq_django.models import Job, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from hipq_django.models import Queue

COUNT_LIMIT = 10_000
"""Nothing is counted beyond; a count of one more means that there are more."""


def format_count(number: int) -> str:
    """Return a count as text: '1,234', or '10,000+' where counting stopped."""
    return f"{COUNT_LIMIT:,}+" if number > COUNT_LIMIT else f"{number:,}"


def capped_count(rows: QuerySet[Any]) -> int:
    """Return how many rows there are, 10,001 where there are more than 10,000."""
    return int(rows.order_by().values("pk")[: COUNT_LIMIT + 1].count())


class _OverFirst(Subquery):
    """An aggregate over the first rows of a subquery only, however many there are."""

    def __init__(self, aggregate: str, rows: QuerySet[Any], column: str, output: Any) -> None:
        template = f"(SELECT {aggregate} FROM (%(subquery)s) first_rows)"  # noqa: S608 - no input
        rows = rows.values(column)[: COUNT_LIMIT + 1]
        super().__init__(rows, output_field=output, template=template)


def with_figures(queues: QuerySet[Any], now: datetime) -> QuerySet[Any]:
    """Return the queues with what stands in each.

    `waiting_count`, `due_count`, `scheduled_count` (of the future), `running_count`,
    `awaiting_count` (an answer), `error_count`, `oldest_due` (the time of the job that has been
    due longest) and `load`. Nothing is counted beyond 10,000 rows; a count of 10,001 means more.
    Bounds on the rank stop the look for due and for future jobs where the order allows it. All
    is asked for in the order of an index, because PostgreSQL would look for the first 10,000 in
    the whole table where it guesses wrongly how many there are.
    """
    jobs: Any = Job.objects.using(queues.db).filter(queue=OuterRef("pk"))
    due = jobs.due(now).filter(rank__lte=OuterRef("high_water_mark"))
    future = jobs.waiting().filter(
        scheduled_run_time__gt=now, rank__gte=OuterRef("first_future_rank")
    )
    running = jobs.running().order_by("deadline")
    rows = list(queues)
    found: QuerySet[Any] = queues.annotate(
        high_water_mark=_of_each(
            {queue.pk: queue.high_water_mark(now) for queue in rows}, MAX_RANK
        ),
        first_future_rank=_of_each(
            {queue.pk: queue.first_future_rank(now) for queue in rows}, -MAX_RANK
        ),
    ).annotate(
        waiting_count=_count(jobs.waiting().order_by("rank", "id")),
        due_count=_count(due.order_by("rank", "id")),
        scheduled_count=_count(future.order_by("rank", "id")),
        running_count=_count(running),
        awaiting_count=_count(running.filter(worker=None, has_pending_answer=False)),
        error_count=_count(jobs.in_error().order_by("id")),
        oldest_due=_OverFirst(
            "MIN(scheduled_run_time)",
            due.order_by("rank", "id"),
            "scheduled_run_time",
            DateTimeField(),
        ),
        load=_OverFirst("SUM(throttle_factor)", running, "throttle_factor", DecimalField()),
    )
    return found


def _count(rows: QuerySet[Any]) -> _OverFirst:
    return _OverFirst("COUNT(*)", rows, "pk", IntegerField())


def _of_each(ranks: Mapping[int, int], default: int) -> Case:
    """A rank for each queue, by its id."""
    whens = [When(pk=pk, then=Value(rank)) for pk, rank in ranks.items()]
    return Case(*whens, default=Value(default), output_field=BigIntegerField())


def live_workers(using: str) -> list[Worker]:
    """Return the workers that claim jobs and whose heart beats."""
    now = clock.now(using)
    workers = Worker.objects.using(using).filter(state=Worker.State.RUNNING)
    return [worker for worker in workers if not worker.is_silent(now)]


def is_served(queue: Queue, workers: Sequence[Worker]) -> bool:
    """Return whether one of the workers runs the jobs of a queue."""
    return any(worker.serves(queue) for worker in workers)
