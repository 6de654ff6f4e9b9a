"""Shows handlers the due times of their jobs in the time zones of the schedules."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from hipq_django.database.built_once import built_once
from hipq_django.database.lookups import ids_in
from hipq_django.domain.schedules import in_zone
from hipq_django.models import Job, Schedule


def show_due_times(jobs: Sequence[Job]) -> None:
    """Give the jobs of schedules their due times as these show them.

    Where the schedule was deleted since, nobody knows its zone: then it is that of the project.
    """
    ids = {job.schedule_id for job in jobs if job.schedule_id}
    schedules = {row.id: row for row in _schedules_of(ids, jobs[0].using)}
    for job in jobs:
        assert job.due_time is not None  # noqa: S101 - for type checkers
        schedule = schedules.get(job.schedule_id or 0)
        job.due_time = schedule.shown(job.due_time) if schedule else in_zone(job.due_time, "")


@built_once
def _schedules_of(ids: Sequence[int], using: str) -> QuerySet[Schedule]:
    return Schedule.objects.using(using).filter(ids_in("pk", ids)).only("cron", "time_zone")
