"""Schedules make one job for each due time, and say what became of the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.api.building import Builder
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import InvalidScheduleError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Job, Schedule, ScheduleRun, Worker
from hipq_django.schedules import declared
from hipq_django.schedules.firing import LOOK_SECONDS, Firing
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def now() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


@pytest.fixture
def hourly(now: time_machine.Traveller) -> Any:
    """Make a schedule of the type `echo` that is due each hour."""

    def make(name: str = "hourly", **options: Any) -> Schedule:
        spec = hipq.Cron("0 * * * *", "UTC", **options)
        return hipq.schedule(name, hipq.NewJob("echo", {"n": 1}), spec)

    return make


def fire() -> int:
    return Firing(get_instance()).run()


def runs() -> list[tuple[str, datetime, int]]:
    rows = ScheduleRun.objects.order_by("pk")
    return [(run.kind, run.due_time, run.count) for run in rows]


def row(name: str = "hourly") -> Schedule:
    return Schedule.objects.get(name=name)


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def test_a_due_time_becomes_a_job_and_the_next_one_is_known(
    hourly: Any, now: time_machine.Traveller
) -> None:
    made = hourly()
    assert made.next_time == at(1)
    assert fire() == 0

    now.move_to(at(1))
    assert fire() == 1
    assert fire() == 0

    job = Job.objects.get()
    assert (job.job_data, job.due_time, job.schedule_id) == ({"n": 1}, at(1), made.pk)
    assert row().next_time == at(2)
    assert runs() == [("fired", at(1), 1)]
    assert ScheduleRun.objects.get().job_id == job.pk


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (hipq.Cron("0 2 * * *", "Europe/Paris"), "2025-01-07 02:00:00+01:00"),
        (hipq.Every(days=1), "2025-01-07 00:00:00+00:00"),
    ],
)
def test_a_job_knows_its_due_time_when_it_runs(
    declare: Declare, now: time_machine.Traveller, spec: Any, shown: str
) -> None:
    seen: list[Any] = []
    nightly = declare.task("nightly", schedule=spec)
    nightly(lambda job=hipq.JOB: seen.append(str(job.due_time)))
    run_due_jobs()

    now.move_to(at(24))
    run_due_jobs()

    assert seen == [shown]


def test_the_date_of_a_due_time_is_that_of_its_zone(
    declare: Declare, now: time_machine.Traveller, settings: Settings
) -> None:
    """Also for a job that was requeued; where the schedule is gone, the project's zone counts."""
    settings.TIME_ZONE = "America/New_York"
    seen: list[str] = []

    @declare.task("report")
    def report(job: Job = hipq.JOB) -> None:
        seen.append(str(job.due_time))

    hipq.schedule("tokyo", report.new(), hipq.Cron("0 1 * * *", zone="Asia/Tokyo"))
    now.move_to(at(4))
    run_due_jobs()
    job = Job.objects.get(due_time=at(4))
    hipq.requeue(job)
    run_due_jobs()
    hipq.unschedule("tokyo")
    again = hipq.requeue(job)
    run_due_jobs()

    assert again.due_time == at(4)
    assert seen == [
        "2025-01-07 01:00:00+09:00",
        "2025-01-07 01:00:00+09:00",
        "2025-01-06 11:00:00-05:00",
    ]


# Late


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("last", [("missed", at(1), 2), ("fired", at(3), 1)]),
        ("none", [("missed", at(1), 3)]),
        ("all", [("fired", at(1), 1), ("fired", at(2), 1), ("fired", at(3), 1)]),
    ],
)
def test_what_was_missed_is_caught_up_as_told(
    hourly: Any, now: time_machine.Traveller, catch_up: str, expected: Any
) -> None:
    hourly(catch_up=catch_up)
    now.move_to(at(3.5))

    fire()

    assert runs() == expected
    assert row().next_time == at(4)


def test_what_is_caught_up_runs_one_after_the_other(
    hourly: Any, now: time_machine.Traveller
) -> None:
    hourly(catch_up="all")
    now.move_to(at(3.5))
    fire()

    first, second, third = Job.objects.order_by("pk")
    assert (first.hold_time, second.needs.get().needs_job) == (None, first)
    assert third.needs.get().needs_job == second
    hipq.cancel(first)
    run_due_jobs()
    assert [job.outcome for job in Job.objects.order_by("pk")[1:]] == ["succeeded"] * 2


# Overlap


@pytest.mark.parametrize(
    ("overlap", "kinds", "states"),
    [
        ("skip", ["fired", "skipped", "skipped"], ["initial"]),
        ("allow", ["fired", "fired", "fired"], ["initial"] * 3),
        ("wait", ["fired", "fired", "skipped"], ["initial"] * 2),
        ("replace", ["fired", "fired", "fired"], ["final", "final", "initial"]),
    ],
)
def test_overlapping_jobs(
    hourly: Any, now: time_machine.Traveller, overlap: str, kinds: Any, states: Any
) -> None:
    hourly(overlap=overlap)
    for hour in (1, 2, 3):
        now.move_to(at(hour))
        fire()

    assert [kind for kind, *_ in runs()] == kinds
    assert [job.state for job in Job.objects.order_by("pk")] == states
    if overlap == "skip":
        first = Job.objects.get()
        skipped = ScheduleRun.objects.filter(kind="skipped").first()
        assert skipped is not None
        assert (skipped.reason, skipped.job_id) == (f"job {first.pk} is initial", first.pk)
    if overlap == "wait":
        first, second = Job.objects.order_by("pk")
        assert second.hold_time is not None
        run_due_jobs()
        second.refresh_from_db()
        assert second.outcome == "succeeded"


def test_a_key_that_is_taken_is_skipped(now: time_machine.Traveller) -> None:
    holder = hipq.enqueue("ask", job_key="k")
    for name in ("one", "two"):
        new = hipq.NewJob("ask", job_key="k") if name == "one" else hipq.NewJob("ask")
        hipq.schedule(name, new, hipq.Every(hours=1, overlap="allow"))
    now.move_to(at(1))

    fire()

    skipped = ScheduleRun.objects.get(schedule__name="one")
    assert (skipped.kind, skipped.job_id) == ("skipped", holder.pk)
    assert ScheduleRun.objects.get(schedule__name="two").kind == "fired"


def test_of_unique_jobs_that_are_caught_up_one_is_made(
    declare: Declare, now: time_machine.Traveller
) -> None:
    sync = declare.task("sync", unique=True)(lambda: None)
    hipq.schedule("sync", sync.new(), hipq.Cron("0 * * * *", "UTC", catch_up="all"))
    now.move_to(at(3.5))

    fire()
    backfilled = hipq.backfill("sync", at(-2), at(0))

    job = Job.objects.get()
    assert [kind for kind, *_ in runs()] == ["skipped", "skipped", "fired", "skipped", "skipped"]
    assert {run.job_id for run in ScheduleRun.objects.all()} == {job.pk}
    assert (job.due_time, backfilled, row("sync").problem) == (at(1), [], "NONE")
    assert row("sync").next_time == at(4)


def test_jitter_moves_the_job_and_not_its_due_time(
    hourly: Any, now: time_machine.Traveller
) -> None:
    hourly(jitter=600)
    now.move_to(at(1))
    fire()

    job = Job.objects.get()
    assert job.due_time == at(1)
    assert at(1) < job.scheduled_run_time < at(1) + timedelta(seconds=600)


# What is wrong with a row stops nobody else


@pytest.mark.parametrize("names", ["broken a b", "a broken b", "a b broken"])
def test_a_row_that_cannot_be_read_lets_no_other_skip_a_due_time(
    hourly: Any, now: time_machine.Traveller, names: str
) -> None:
    for name in names.split():
        hourly(name)
    Schedule.objects.filter(name="broken").update(cron="61 * * * *")
    now.move_to(at(1))

    fire()

    assert [job.due_time for job in Job.objects.all()] == [at(1)] * 2
    assert {run.schedule.name for run in ScheduleRun.objects.all()} == {"a", "b"}
    assert (row("a").next_time, row("b").next_time) == (at(2), at(2))


def test_a_row_that_cannot_be_read_is_put_right_by_the_verb(
    hourly: Any, now: time_machine.Traveller
) -> None:
    hourly("broken")
    Schedule.objects.update(cron="61 * * * *")
    now.move_to(at(3))
    fire()

    hourly("broken")

    assert (row("broken").problem, row("broken").next_time) == ("NONE", at(4))
    assert [(kind, due) for kind, due, _ in runs()] == [("skipped", at(1))]
    now.move_to(at(4))
    assert fire() == 1


def test_a_row_that_cannot_be_read_is_named_and_tried_again_in_half_a_minute(
    hourly: Any, now: time_machine.Traveller
) -> None:
    hourly("broken")
    Schedule.objects.update(cron="61 * * * *")
    now.move_to(at(1))
    firing = Firing(get_instance())

    firing.run()
    began = time.monotonic()
    with CaptureQueriesContext(connection) as queries:
        firing.run()

    assert "bad minute" in row("broken").problem
    assert len(queries) == 1
    assert firing.due_at > began + LOOK_SECONDS / 2
    Schedule.objects.update(cron="0 * * * *")
    now.move_to(at(1) + 2 * MINUTE)
    fire()
    assert (row("broken").problem, runs()) == ("NONE", [("fired", at(1), 1)])


# Declared in code


def test_a_declared_schedule_has_a_row(declare: Declare, now: time_machine.Traveller) -> None:
    declare.task("clean", schedule="30 2 * * *")(lambda: None)
    specs = {"early": "0 1 * * *", "late": hipq.Every(hours=6)}
    declare("report", schedule=specs)(lambda job: None)

    declared.sync("default")
    declared.sync("default")

    names = dict(Schedule.objects.values_list("name", "job_type__name"))
    assert names == {"clean": "clean", "early": "report", "late": "report"}
    assert row("clean").next_time == datetime(2025, 1, 7, 2, 30, tzinfo=UTC)
    assert row("late").every_seconds == 6 * 3_600


def test_the_times_that_an_operator_edited_stay_together(
    declare: Declare, now: time_machine.Traveller
) -> None:
    """Those of the code might not fit to them."""
    declare.task("clean", schedule=hipq.Cron("0 2 * * *", jitter=5))(lambda: None)
    declared.sync("default")
    Schedule.objects.update(cron="", every_seconds=60)
    declare.forget_all()
    declare.task("clean", schedule=hipq.Cron("0 4 * * *", jitter=600))(lambda: None)

    declared.sync("default")
    kept = row("clean")
    declared.sync("default", is_reset="clean".__eq__)

    assert (kept.cron, kept.every_seconds, kept.jitter) == ("", 60, 5)
    assert (row("clean").spec, row("clean").next_time) == (
        hipq.Cron("0 4 * * *", jitter=600), datetime(2025, 1, 7, 4, tzinfo=UTC),
    )  # fmt: skip


def test_code_that_declares_what_was_made_by_hand_says_all_of_it(
    declare: Declare, now: time_machine.Traveller
) -> None:
    new = hipq.NewJob("echo", {"n": 1}, priority=5)
    hipq.schedule("clean", new, hipq.Cron("0 * * * *", "UTC"))
    declare.task("clean", schedule=hipq.Cron("0 * * * *", "UTC"))(lambda shop="all": None)

    declared.sync("default")
    now.move_to(at(1))
    fire()

    job = Job.objects.get()
    assert (job.job_type.name, job.job_data, job.priority) == ("clean", {}, 100)
    assert row("clean").problem == "NONE"


def test_one_that_cannot_be_declared_stops_no_other(
    declare: Declare, now: time_machine.Traveller, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "broken", "z"):
        declare.task(name, schedule="0 2 * * *")(lambda: None)
    declared.sync("default")
    Schedule.objects.filter(name="broken").update(declared=["what code never says"])
    Schedule.objects.exclude(name="broken").delete()

    assert declared.sync("default") == ["broken"]

    assert {found.name for found in Schedule.objects.all()} == {"a", "broken", "z"}
    [said] = [r for r in caplog.records if getattr(r, "event", "") == "row_left_alone"]
    assert (said.levelname, said.schedule) == ("ERROR", "broken")  # type: ignore[attr-defined]  # of the event


@pytest.mark.parametrize(
    ("began", "declares", "retired"),
    [(-9, ["clean"], 0), (1, ["other"], 1), (-9, [], 1)],
)
def test_what_no_live_worker_declares_is_retired_and_comes_back(
    declare: Declare,
    now: time_machine.Traveller,
    began: float,
    declares: list[str],
    retired: int,
) -> None:
    """Another worker lives, which began before or after the one that declared it has ended."""
    config = get_instance()
    WorkerFactory.create(state=Worker.State.STOPPED, schedules=["clean"])
    WorkerFactory.create(create_time=at(began), schedules=declares)
    declare.task("clean", schedule="0 * * * *")(lambda: None)
    declared.sync("default")
    now.move_to(at(2))

    with_code = declared.retire(config)
    declare.forget_all()

    assert (with_code, declared.retire(config)) == (0, retired)
    now.move_to(at(3))
    assert fire() == 1 - retired

    declare.task("clean", schedule="0 * * * *")(lambda: None)
    declared.sync("default")
    assert fire() == retired
    assert [kind for kind, *_ in runs()] == ["missed", "fired"]


def test_a_renamed_task_goes_on_with_the_schedule_whose_name_it_keeps(
    declare: Declare, now: time_machine.Traveller
) -> None:
    declare.task("clean", schedule="0 * * * *")(lambda: "old")
    declared.sync("default")
    now.move_to(at(1))
    declare.forget_all()
    declare.task("tidy", aliases=["clean"], schedule={"clean": "0 * * * *"})(lambda: "new")

    declared.sync("default")

    assert fire() == 1
    assert Job.objects.get().job_type.name == "tidy"
    assert runs() == [("fired", at(1), 1)]


def test_schedules_made_by_hand_are_not_retired(hourly: Any) -> None:
    hourly()
    WorkerFactory.create()

    assert declared.retire(get_instance()) == 0


def test_new_rules_of_a_zone_move_the_next_time(
    hourly: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hourly()
    declared.sync("default")
    assert "schedule_moved" not in caplog.text

    Schedule.objects.update(next_time=at(1.5))
    declared.sync("default")

    assert row().next_time == at(1)
    [said] = [r for r in caplog.records if getattr(r, "event", "") == "schedule_moved"]
    assert (
        vars(said).items()
        >= {
            "levelname": "WARNING",
            "schedule": "hourly",
            "before": "2025-01-06 13:30:00+00:00",
            "after": "2025-01-06 13:00:00+00:00",
        }.items()
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "61 * * * *"}, "job type 'clean': .*bad minute"),
        ({"schedule": 5}, "give a text of cron, hipq.Cron"),
        ({"schedule": {"": "* * * * *"}}, "printable characters"),
    ],
)
def test_a_declaration_that_cannot_be_due_is_refused(
    declare: Declare, options: Any, said: str
) -> None:
    with pytest.raises(InvalidScheduleError, match=said):
        declare.task("clean", **options)(lambda: None)


@pytest.mark.parametrize("spec", ["0 2 * * *", {"clean": "0 2 * * *", "more": "0 3 * * *"}])
def test_a_name_is_declared_by_one_job_type_only(declare: Declare, spec: Any) -> None:
    declare("report", schedule={"clean": "0 1 * * *"})(lambda job: None)

    said = "'clean' is declared twice in instance 'default': by job type 'report' .* and job type "
    with pytest.raises(InvalidScheduleError, match=said):
        declare.task("clean", schedule=spec)(lambda: None)

    assert get_declared("default", "clean") is None
    declare("report", schedule={"clean": "0 1 * * *"}, instance="other")(lambda job: None)


def test_a_task_with_required_arguments_cannot_be_scheduled_by_itself(declare: Declare) -> None:
    with pytest.raises(hipq.InvalidJobTypeError, match=r"its argument shop has no default"):
        declare.task("clean", schedule="* * * * *")(lambda shop: None)


def test_a_strict_worker_fires_what_only_the_code_of_others_declares(
    now: time_machine.Traveller, settings: Settings
) -> None:
    """Each worker fires all schedules of its instance, and a deploy does not reach all at once."""
    spec = hipq.Cron("0 * * * *", "UTC", overlap="allow")
    hipq.schedule("hourly", hipq.NewJob("of another release"), spec)
    settings.HIPQ = {"default": {"STRICT": True}}
    now.move_to(at(1))

    assert fire() == 1

    assert row().problem == "NONE"
    assert hipq.run_schedule("hourly").job_type.name == "of another release"
    assert len(hipq.backfill("hourly", at(-3), at(-1))) == 2


def test_a_sensitive_value_of_two_lines_is_masked_before_one_line_is_shown(
    declare: Declare,
    now: time_machine.Traveller,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def build(builder: Builder, new: hipq.NewJob, *args: Any, **kwargs: Any) -> Job:
        raise ValueError(f"cannot read {new.job_data['pem']}\nat all")

    pem = "BEGIN S3CRET\nS3CRET END"
    declare("report", sensitive=["pem"])(lambda job: None)
    hipq.schedule("report", hipq.NewJob("report", {"pem": pem}), hipq.Cron("0 * * * *", "UTC"))
    monkeypatch.setattr(Builder, "build", build)
    now.move_to(at(1))

    fire()

    assert row("report").problem == "cannot read •••"
    assert "event=schedule_not_fired" in caplog.text
    assert "S3CRET" not in caplog.text


def test_one_that_is_due_costs_few_queries(hourly: Any, now: time_machine.Traveller) -> None:
    """The test kit goes from due time to due time."""
    hourly()
    now.move_to(at(1))

    with CaptureQueriesContext(connection) as queries:
        fire()

    statements = [query for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(statements) <= 12
