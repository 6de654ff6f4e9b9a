"""Numbers of jobs in queues, counted up to a bound and by one query for all queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import QuerySet

from hipq_django.database import clock
from hipq_django.domain.dependencies import PART
from hipq_django.domain.ordering import MAX_RANK
from hipq_django.models import Job, Link, Worker

COUNT_LIMIT = 10_000
"""Counting stops here; a count of one more means that there are more."""


def format_count(number: int, write: Callable[[int], str] = "{:,}".format) -> str:
    """Return a count as text: '1,234', or '10,000+' where counting stopped."""
    return f"{write(COUNT_LIMIT)}+" if number > COUNT_LIMIT else write(number)


def capped_count(rows: QuerySet[Any]) -> int:
    """Return the number of rows; 10,001 if there are more than 10,000."""
    return int(rows.order_by().values("pk")[: COUNT_LIMIT + 1].count())


class OverFirst(models.Subquery):
    """An aggregate over the first rows of a subquery only, however many there are."""

    def __init__(self, aggregate: str, rows: QuerySet[Any], column: str, output: Any) -> None:
        template = f"(SELECT {aggregate} FROM (%(subquery)s) first_rows)"  # noqa: S608 - no input
        rows = rows.values(column)[: COUNT_LIMIT + 1]
        super().__init__(rows, output_field=output, template=template)

    @classmethod
    def count(cls, rows: QuerySet[Any]) -> OverFirst:
        """Return the number of the rows; 10,001 if there are more than 10,000."""
        return cls("COUNT(*)", rows, "pk", models.IntegerField())


def awaiting_answer(running: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of running jobs that another system is to answer.

    Not those that wait for the ends of other jobs, which they gather.
    """
    gathered = Link.objects.filter(job=models.OuterRef("pk"), needs_job__isnull=False, on=PART)
    return running.filter(~models.Exists(gathered), worker=None, has_pending_answer=False)


def with_figures(queues: QuerySet[Any], now: datetime) -> QuerySet[Any]:
    """Return the queues with the numbers of their jobs.

    `waiting_count`, `due_count`, `scheduled_count` (of the future), `running_count`,
    `awaiting_count` (an answer), `error_count`, `oldest_due` (the time of the job that has been
    due longest), `load`, and `next_factor`, which the first due job adds to it. Nothing is counted
    beyond 10,000 rows, but for the load of a queue with a limit; a count of 10,001 means more.
    Bounds on the rank stop the look for due and for future jobs where the order allows it. All
    is asked for in the order of an index, because PostgreSQL would look for the first 10,000 in
    the whole table where it guesses wrongly how many there are.
    """
    jobs: Any = Job.objects.using(queues.db).filter(queue=models.OuterRef("pk"))
    waiting = jobs.waiting().order_by("rank", "id")
    due = jobs.due(now).filter(rank__lte=models.OuterRef("high_water_mark")).order_by("rank", "id")
    future = waiting.filter(
        scheduled_run_time__gt=now, rank__gte=models.OuterRef("first_future_rank")
    )
    running = jobs.running().order_by("deadline")
    rows = list(queues)
    highest = {queue.pk: queue.high_water_mark(now) for queue in rows}
    first = {queue.pk: queue.first_future_rank(now) for queue in rows}
    found: QuerySet[Any] = queues.annotate(
        high_water_mark=_of_each(highest, MAX_RANK), first_future_rank=_of_each(first, -MAX_RANK)
    ).annotate(
        waiting_count=OverFirst.count(waiting),
        due_count=OverFirst.count(due),
        scheduled_count=OverFirst.count(future),
        running_count=OverFirst.count(running),
        awaiting_count=OverFirst.count(awaiting_answer(running)),
        error_count=OverFirst.count(jobs.in_error().order_by("id")),
        oldest_due=OverFirst(
            "MIN(scheduled_run_time)", due, "scheduled_run_time", models.DateTimeField()
        ),
        next_factor=models.Subquery(
            due.filter(throttle_factor__gt=0).values("throttle_factor")[:1]
        ),
        load=_load(running),
    )
    return found


def _load(running: QuerySet[Any]) -> models.Case:
    """The sum of the factors; with a limit that of all jobs, for which each claim asks, too."""
    factor, field = "throttle_factor", models.DecimalField()
    total = running.order_by().values("queue").annotate(load=models.Sum(factor)).values("load")
    return models.Case(
        models.When(throttle_limit__gte=1, then=models.Subquery(total, output_field=field)),
        default=OverFirst(f"SUM({factor})", running, factor, field),
    )


def newest_ended(since: datetime, until: datetime) -> QuerySet[Job]:
    """Return, for a query of queues, the jobs that ended in a span, the newest first."""
    jobs = Job.objects.final().filter(queue=models.OuterRef("pk"))
    return jobs.filter(update_time__gt=since, update_time__lte=until).order_by("-update_time")


def _of_each(ranks: Mapping[int, int], default: int) -> models.Case:
    """A rank for each queue, by its id."""
    whens = [models.When(pk=pk, then=models.Value(rank)) for pk, rank in ranks.items()]
    return models.Case(*whens, default=models.Value(default), output_field=models.BigIntegerField())


def live_workers(using: str) -> list[Worker]:
    """Return the live workers that claim jobs."""
    now = clock.now(using)
    workers = Worker.objects.using(using).filter(state=Worker.State.RUNNING)
    return [worker for worker in workers if not worker.is_silent(now)]
