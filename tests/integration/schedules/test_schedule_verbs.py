"""What a project does with schedules: make, change, pause, run now, backfill, delete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import InvalidScheduleError
from hipq_django.models import Job, Schedule, ScheduleRun
from hipq_django.schedules import declared
from hipq_django.schedules.firing import Firing
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
HOURLY = hipq.Cron("0 * * * *", "UTC")
ECHO = hipq.NewJob("echo", {"n": 1})


@pytest.fixture(autouse=True)
def now() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def fire() -> None:
    Firing(get_instance()).run()


def row() -> Schedule:
    return Schedule.objects.get(name="s")


def kinds() -> list[str]:
    return list(ScheduleRun.objects.order_by("pk").values_list("kind", flat=True))


# Make and change


@pytest.mark.conformance
def test_the_same_again_writes_nothing() -> None:
    def written(new: hipq.NewJob) -> list[str]:
        with CaptureQueriesContext(connection) as queries:
            hipq.schedule("s", new, HOURLY)
        writes = ('INSERT INTO "hipq_', 'UPDATE "hipq_', 'DELETE FROM "hipq_')
        return [query["sql"] for query in queries if query["sql"].startswith(writes)]

    hipq.schedule("s", ECHO, HOURLY)

    assert written(ECHO) == []
    assert len(written(hipq.NewJob("echo", {"n": 2}))) == 1
    assert Schedule.objects.count() == 1


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({"priority": 5, "timeout": 60, "job_key": "k"}, {}),
        ({"throttle_factor": Decimal("0.125")}, {}),
        ({"time_windows": [hipq.TimeWindow("22:00", "02:00")]}, {"time_windows": ["22:00-02:00"]}),
    ],
)
def test_a_text_alone_is_cron_and_options_are_kept(
    options: dict[str, Any], stored: dict[str, Any], now: time_machine.Traveller
) -> None:
    hipq.schedule("s", hipq.NewJob("echo", queue="other", **options), "0 * * * *")
    now.move_to(at(1))
    fire()

    job = Job.objects.get()
    assert job.queue.name == "other"
    assert {name: getattr(job, name) for name in options} == options | stored


def test_new_data_keep_the_next_time_and_new_times_count_from_now(
    now: time_machine.Traveller,
) -> None:
    hipq.schedule("s", ECHO, HOURLY)
    now.move_to(at(1.5))

    hipq.schedule("s", hipq.NewJob("echo", {"n": 2}), HOURLY)
    assert row().next_time == at(1)
    hipq.schedule("s", hipq.NewJob("echo", {"n": 2}), hipq.Every(hours=3))

    assert row().next_time == at(3)
    run = ScheduleRun.objects.get()
    assert (run.kind, run.reason, run.due_time, run.count) == ("skipped", "edited", at(1), 1)


@pytest.mark.parametrize(
    ("name", "new", "spec", "said"),
    [
        ("", ECHO, HOURLY, "give text of 1 to 200 printable characters"),
        (7, ECHO, HOURLY, "give text of 1 to 200"),
        ("s", hipq.NewJob("echo", delay=5), HOURLY, "delay= is not for jobs of schedules"),
        ("s", hipq.NewJob("echo", after=[1]), HOURLY, "after= is not for jobs of schedules"),
        ("s", hipq.NewJob("echo", priority="high"), HOURLY, "priority 'high'"),  # type: ignore[arg-type]  # what is refused
        ("s", hipq.NewJob("echo", object()), HOURLY, "job_data is not JSON"),
        ("s", ECHO, 60, "give a text of cron"),
        ("s", ECHO, "60 * * * *", "bad minute"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(name: Any, new: Any, spec: Any, said: str) -> None:
    with pytest.raises(InvalidScheduleError) as raised:
        hipq.schedule(name, new, spec)

    assert said in str(raised.value)
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("is_written", [True, False])
def test_a_declared_schedule_is_changed_in_the_code(declare: Declare, is_written: bool) -> None:
    declare.task("s", schedule=HOURLY)(lambda: None)
    if is_written:
        declared.sync("default")

    with pytest.raises(InvalidScheduleError, match="declared in code: change its code"):
        hipq.schedule("s", ECHO, HOURLY)
    with pytest.raises(InvalidScheduleError, match="pause it, or remove it from the code"):
        hipq.unschedule("s")


def test_one_whose_code_is_gone_is_taken_over_or_deleted(
    declare: Declare, now: time_machine.Traveller
) -> None:
    WorkerFactory.create(create_time=at(-1))
    for name in ("s", "other"):
        declare.task(name, schedule=HOURLY)(lambda: None)
    declared.sync("default")
    declare.forget_all()
    now.move_to(at(0.5))
    assert declared.retire(get_instance()) == 2

    hipq.schedule("s", ECHO, HOURLY)
    hipq.unschedule("other")

    now.move_to(at(1))
    assert declared.retire(get_instance()) == 0
    fire()
    assert [job.job_data for job in Job.objects.all()] == [{"n": 1}]
    assert Schedule.objects.get().is_declared is False


def test_a_name_that_is_not_there_is_told_with_the_nearest() -> None:
    hipq.schedule("invoices acme", ECHO, HOURLY)

    for verb in (hipq.unschedule, hipq.pause_schedule, hipq.resume_schedule, hipq.run_schedule):
        with pytest.raises(hipq.ScheduleNotFoundError, match="did you mean 'invoices acme'"):
            verb("invoice acme")
    with pytest.raises(hipq.ScheduleNotFoundError):
        hipq.backfill("x", at(-2), at(-1))


def test_a_schedule_that_no_worker_has_written_down_yet_is_told_so(declare: Declare) -> None:
    declare.task("clean", schedule="30 2 * * *")(lambda: None)

    for verb in (hipq.pause_schedule, hipq.resume_schedule, hipq.run_schedule):
        with pytest.raises(
            hipq.ScheduleNotFoundError, match="A worker that starts, and in a test run_due_jobs"
        ):
            verb("clean")

    run_due_jobs()
    assert hipq.run_schedule("clean").job_type.name == "clean"


def test_a_schedule_is_deleted_and_its_jobs_stay(now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, HOURLY)
    now.move_to(at(1))
    fire()

    hipq.unschedule("s")

    assert not Schedule.objects.exists()
    assert not ScheduleRun.objects.exists()
    assert Job.objects.get().due_time == at(1)


# Pause


def test_due_times_pass_while_it_is_paused(now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, HOURLY)
    hipq.pause_schedule("s", "the bank is closed")
    now.move_to(at(2.5))
    fire()
    assert (row().pause_reason, kinds()) == ("the bank is closed", [])

    hipq.resume_schedule("s")
    fire()

    run = ScheduleRun.objects.get()
    assert (run.kind, run.reason, run.count) == ("missed", "it was paused", 2)
    assert row().next_time == at(3)
    assert not Job.objects.exists()


# Run now


def test_it_runs_now_also_while_it_is_paused(now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, hipq.Cron("0 * * * *", "UTC", jitter=3_600))
    hipq.pause_schedule("s")
    now.move_to(at(0.5))

    job = hipq.run_schedule("s")

    assert (job.due_time, job.scheduled_run_time, kinds()) == (at(0.5), at(0.5), ["manual"])
    assert row().next_time == at(1)


def test_jobs_that_verbs_return_show_the_zone_of_the_schedule() -> None:
    hipq.schedule("s", ECHO, hipq.Cron("0 1 * * *", "Asia/Tokyo"))

    [job] = hipq.backfill("s", at(-24), at(0))

    assert str(job.due_time) == "2025-01-06 01:00:00+09:00"
    hipq.cancel(job)
    assert str(hipq.run_schedule("s").due_time) == "2025-01-06 21:00:00+09:00"


def test_run_now_names_the_job_that_has_the_key() -> None:
    holder = hipq.enqueue("ask", job_key="k")
    hipq.schedule("s", hipq.NewJob("ask", job_key="k"), HOURLY)

    with pytest.raises(hipq.InvalidJobError, match=f"'s': job {holder.pk} is initial"):
        hipq.run_schedule("s")
    assert not ScheduleRun.objects.exists()


@pytest.mark.conformance
@pytest.mark.parametrize("overlap", ["skip", "wait", "replace", "allow"])
def test_run_now_meets_a_live_job(overlap: Any, now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, hipq.Cron("0 * * * *", "UTC", overlap=overlap))
    first = hipq.run_schedule("s")
    now.shift(1)

    if overlap == "skip":
        with pytest.raises(hipq.InvalidJobError, match=f"'s': job {first.pk} is initial; wait"):
            hipq.run_schedule("s")
        return
    second = hipq.run_schedule("s")
    first.refresh_from_db()
    assert (first.state == "final") is (overlap == "replace")
    assert (second.hold_time is not None) is (overlap == "wait")
    if overlap == "wait":
        with pytest.raises(hipq.InvalidJobError, match=f"'s': job {second.pk} is initial"):
            hipq.run_schedule("s")


# Backfill


@pytest.mark.conformance
def test_past_due_times_are_made_up_for_once_and_in_turn(now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, HOURLY)
    now.move_to(at(1))
    fire()
    run_due_jobs()
    now.move_to(at(1.5))

    jobs = hipq.backfill("s", at(-2), at(1.25))
    again = hipq.backfill("s", at(-2), at(1.25))

    assert [job.due_time for job in jobs] == [at(-2), at(-1), at(0)]
    assert again == []
    assert jobs[1].needs.get().needs_job == jobs[0]
    run_due_jobs()
    assert set(Job.objects.values_list("outcome", flat=True)) == {"succeeded"}


def test_the_clock_of_who_backfills_until_now_may_be_a_little_ahead() -> None:
    hipq.schedule("s", ECHO, HOURLY)

    jobs = hipq.backfill("s", at(-2), at(0) + timedelta(seconds=1))

    assert [job.due_time for job in jobs] == [at(-2), at(-1)]


@pytest.mark.conformance
@pytest.mark.parametrize("times", [{}, {"cron": "* * * * *", "every_seconds": 60}])
def test_a_schedule_without_times_or_with_both_is_refused_by_the_database(
    times: dict[str, Any],
) -> None:
    hipq.schedule("s", ECHO, HOURLY)
    values = {"cron": "", "every_seconds": None, **times}

    with pytest.raises(IntegrityError, match="hipq_schedule_has_one_spec"), transaction.atomic():
        Schedule.objects.update(**values)


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (at(-1), at(1), "is in the future"),
        (at(-1), at(-2), "is before start"),
        (NOON.replace(tzinfo=None), NOON, "give an aware datetime"),
        (at(-1), "noon", "give an aware datetime"),
        (at(-1_001), at(0), "more than 1,000 due times"),
    ],
)
def test_a_backfill_that_cannot_be_is_refused(start: Any, end: Any, said: str) -> None:
    hipq.schedule("s", ECHO, HOURLY)

    with pytest.raises(InvalidScheduleError, match=said):
        hipq.backfill("s", start, end)
    assert not Job.objects.exists()


def test_verbs_have_twins_for_async_code() -> None:
    async def verbs() -> tuple[bool, bool, Job, list[Job]]:
        await hipq.aschedule("s", ECHO, hipq.Cron("0 * * * *", "UTC", overlap="allow"))
        is_paused = (await hipq.apause_schedule("s")).paused
        is_still = (await hipq.aresume_schedule("s")).paused
        job, jobs = await hipq.arun_schedule("s"), await hipq.abackfill("s", at(-2), at(-1))
        await hipq.aunschedule("s")
        return is_paused, is_still, job, jobs

    is_paused, is_still, job, jobs = async_to_sync(verbs)()

    assert (is_paused, is_still) == (True, False)
    assert [job.due_time, *(each.due_time for each in jobs)] == [NOON, at(-2)]
    assert not Schedule.objects.exists()


# The command


def call(*arguments: str) -> str:
    printed = StringIO()
    call_command("hipq_schedules", *arguments, stdout=printed)
    return printed.getvalue().strip()


def test_the_command_shows_schedules(now: time_machine.Traveller) -> None:
    assert call() == "no schedules; a worker that starts writes down those of its code"
    hipq.schedule("s", ECHO, hipq.Cron("0 8 * * *", "Europe/Paris"))
    hipq.schedule("often", ECHO, hipq.Every(minutes=5))
    hipq.pause_schedule("often")

    assert call("list").splitlines() == [
        "often: every 0:05:00, next 2025-01-06T12:05:00+00:00 paused",
        "s: 0 8 * * * Europe/Paris, next 2025-01-07T07:00:00+00:00",
    ]
    assert json.loads(call("list", "--json"))[1]["state"] == "active"
    assert call("next", "s", "--count", "2").splitlines() == [
        "2025-01-07T08:00:00+01:00",
        "2025-01-08T08:00:00+01:00",
    ]
    assert len(json.loads(call("next", "often", "--json"))) == 5


def test_the_command_does_what_the_verbs_do(now: time_machine.Traveller) -> None:
    hipq.schedule("s", ECHO, hipq.Cron("0 * * * *", "UTC", overlap="allow"))

    assert call("pause", "s", "--reason", "closed") == "s: paused"
    assert row().pause_reason == "closed"
    assert call("resume", "s") == "s: next 2025-01-06T13:00:00+00:00"
    assert call("run", "s") == f"s: job {Job.objects.get().pk}"
    assert call("backfill", "s", "2025-01-06T09:00Z", "2025-01-06T11:00Z") == "s: 2 jobs"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run",), "run: name a schedule."),
        (("run", "x"), "has no schedule 'x'; known are s."),
        (("list", "s"), "list does not take name 's'; it takes --json."),
        (("pause", "s", "--count", "3"), "pause does not take --count 3; it takes name, --reason."),
        (("next", "s", "--count", "0"), "next: --count 0: give a whole number from 1 to 1,000."),
        (("backfill", "s"), "backfill: give start, a moment with its zone, such as 2026"),
        (("backfill", "s", "today", "now"), "start 'today': give a moment with its zone"),
    ],
)
def test_what_the_command_cannot_do_it_says(arguments: Any, said: str) -> None:
    hipq.schedule("s", ECHO, HOURLY)

    with pytest.raises(CommandError, match=re.escape(said)):
        call(*arguments)


# Where clocks are set back

PARIS = ZoneInfo("Europe/Paris")
MIDNIGHT = datetime(2024, 10, 27, tzinfo=UTC)  # 02:00 in Paris; the clocks go back at 01:00 UTC
HOURS = [MIDNIGHT + timedelta(hours=n) for n in (-1, 0, 1, 2)]
"""The second and the third are the same hour there, and for Python the same moment."""


def test_a_backfill_knows_both_passes_of_a_repeated_hour() -> None:
    spec = hipq.Cron("0 * * * *", "Europe/Paris")
    hipq.schedule("hourly", ECHO, spec)

    made = hipq.backfill("hourly", HOURS[0], HOURS[-1] + timedelta(minutes=1))

    assert [job.due_time.astimezone(UTC) for job in made if job.due_time] == HOURS
    assert [job.due_time.tzinfo for job in made if job.due_time] == 4 * [PARIS]
    assert list(Job.objects.order_by("pk").values_list("due_time", flat=True)) == HOURS
