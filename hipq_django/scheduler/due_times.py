"""Shows handlers the due times of their jobs in the time zones of the schedules."""

from __future__ import annotations

from collections.abc import Sequence

from hipq_django.domain.schedules import in_zone
from hipq_django.models import Job, Schedule


def show_due_times(jobs: Sequence[Job]) -> None:
    """Give the jobs of schedules their due times as these show them.

    Where the schedule was deleted since, nobody knows its zone: then it is that of the project.
    """
    rows = Schedule.objects.using(jobs[0].using).only("cron", "time_zone")
    schedules = rows.in_bulk({job.schedule_id for job in jobs if job.schedule_id})
    for job in jobs:
        assert job.due_time is not None  # noqa: S101 - for type checkers
        schedule = schedules.get(job.schedule_id or 0)
        job.due_time = schedule.shown(job.due_time) if schedule else in_zone(job.due_time, "")
