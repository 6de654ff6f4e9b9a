"""Shows handlers the due times of their jobs in the time zones of the schedules."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Case, F, OuterRef, Subquery, Value, When

from hipq_django.domain.schedules import in_zone
from hipq_django.models import Job, Schedule


def show_due_times(jobs: Sequence[Job]) -> None:
    """Give the jobs of schedules their due times as these show them.

    Where the schedule was deleted since, nobody knows its zone: then it is that of the project.
    """
    zones = _zones(jobs)
    for job in jobs:
        assert job.due_time is not None  # noqa: S101 - for type checkers
        job.due_time = in_zone(job.due_time, zones.get(job.pk) or "")


def _zones(jobs: Sequence[Job]) -> dict[int, str | None]:
    using = jobs[0].using
    zone = Case(When(cron="", then=Value("UTC")), default=F("time_zone"))
    schedules = Schedule.objects.using(using).filter(pk=OuterRef("schedule_id"))
    rows = Job.objects.using(using).filter(pk__in=[job.pk for job in jobs])
    return dict(rows.values_list("pk", Subquery(schedules.values_list(zone)[:1])))
