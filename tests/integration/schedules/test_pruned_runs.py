"""Runs of schedules are pruned with the jobs, and no due time is made a job once more by that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import InvalidScheduleError
from hipq_django.maintenance import schedule_runs
from hipq_django.maintenance.retention import prune
from hipq_django.models import Job, Queue, Schedule, ScheduleRun
from hipq_django.models.catalog import get_queue
from hipq_django.schedules.firing import Firing

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
DAILY = hipq.Cron("0 12 * * *", "UTC", overlap="allow")
ECHO = hipq.NewJob("echo")


@pytest.fixture(autouse=True)
def now() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=False) as traveller:
        get_queue("default", "default")
        Queue.objects.update(retention_days=30)
        yield traveller


def day(number: float) -> datetime:
    return NOON + timedelta(days=number)


def live(now: time_machine.Traveller, start: int, end: int) -> None:
    """Let days pass, with a worker."""
    for number in range(start, end):
        now.move_to(day(number))
        Firing(get_instance()).run()


def pruned() -> int:
    would = prune(get_instance(), dry_run=True)["schedule runs"]
    number = prune(get_instance())["schedule runs"]
    assert would == number
    return number


def runs() -> list[tuple[str, datetime, int]]:
    rows = ScheduleRun.objects.order_by("due_time", "pk")
    return [(run.kind, run.due_time, run.count) for run in rows]


def test_what_was_fired_becomes_one_run_that_grows(
    now: time_machine.Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_runs, "PAGE_SIZE", 2)
    hipq.schedule("s", ECHO, DAILY)
    live(now, 1, 36)

    assert pruned() == 3  # the days 1 to 4 are older than 30 days
    live(now, 36, 38)
    assert pruned() == 2

    first = ScheduleRun.objects.earliest("due_time")
    assert (first.kind, first.due_time, first.until, first.count) == ("fired", day(1), day(6), 6)
    assert (first.job_id, first.reason) == (None, "they were pruned")
    assert runs()[1:] == [("fired", day(number), 1) for number in range(7, 38)]
    assert pruned() == 0


def test_no_due_time_is_made_a_job_twice_because_its_run_is_gone(
    now: time_machine.Traveller,
) -> None:
    hipq.schedule("s", ECHO, DAILY)
    backfilled = hipq.backfill("s", day(-5), day(-2))
    live(now, 1, 60)
    pruned()
    before = Job.objects.count()

    with pytest.raises(InvalidScheduleError, match=r"its runs from .* were pruned"):
        hipq.backfill("s", day(20), day(40))
    assert hipq.backfill("s", day(-5), day(-2)) == []
    assert hipq.backfill("s", day(35), day(59)) == []
    Firing(get_instance()).run()

    assert (len(backfilled), Job.objects.count()) == (3, before)
    assert len(hipq.backfill("s", day(-9), day(-5))) == 4


def test_what_catching_up_may_come_to_stays(now: time_machine.Traveller) -> None:
    """It was backfilled while nobody fired the schedule, which is caught up later."""
    hipq.schedule("s", ECHO, DAILY)
    hipq.schedule("s", ECHO, hipq.Cron("0 12 * * *", "UTC", catch_up="all"))
    Schedule.objects.update(retired=True, catch_up_seconds=90 * 86_400)
    now.move_to(day(40))
    made = hipq.backfill("s", day(1), day(3))
    now.move_to(day(80))
    pruned()
    Schedule.objects.update(retired=False)

    Firing(get_instance()).run()

    assert [job.due_time for job in made] == [day(1), day(2)]
    assert Job.objects.filter(due_time__lt=day(3)).count() == 2
    assert Job.objects.filter(due_time=day(3)).count() == 1


def test_the_last_run_and_those_that_the_admin_shows_stay(
    now: time_machine.Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    Queue.objects.update(retention_days=1)
    hipq.schedule("s", ECHO, DAILY)
    live(now, 1, 21)
    assert pruned() == 4
    assert [at for _, at, _ in runs()] == [day(1), *map(day, range(6, 21))]

    monkeypatch.setattr(schedule_runs, "SHOWN", 3)
    pruned()
    assert [at for _, at, _ in runs()] == [day(1), *map(day, range(18, 21))]

    hipq.pause_schedule("s")
    now.move_to(day(90))
    pruned()
    assert [at for _, at, _ in runs()] == [day(1), day(20)]


def test_runs_without_a_job_are_deleted(now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, hipq.Cron("0 12 * * *", "UTC"))
    live(now, 1, 2)
    live(now, 4, 5)  # the days 2 and 3 were missed, and the job of the first is still live
    assert [kind for kind, *_ in runs()] == ["fired", "missed", "skipped"]
    Job.objects.update(state="running", attempt=1)
    Job.objects.update(state="final", outcome="succeeded")
    live(now, 40, 41)

    pruned()

    assert [kind for kind, *_ in runs()] == ["fired", "missed", "fired"]
    assert runs()[1][1] == day(5)


def test_the_queue_of_the_jobs_counts(now: time_machine.Traveller) -> None:
    get_queue("default", "long")
    Queue.objects.filter(name="long").update(retention_days=100)
    hipq.schedule("short", ECHO, DAILY)
    hipq.schedule("long", hipq.NewJob("echo", queue="long"), DAILY)
    live(now, 1, 51)

    pruned()

    assert ScheduleRun.objects.filter(schedule__name="long").count() == 50
    assert ScheduleRun.objects.filter(schedule__name="short").count() == 32
    assert prune(get_instance(), days=20)["schedule runs"] == 10 + 28
