"""Several connections about the same schedules: each due time is one job, whoever is quicker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import time_machine
from django.db import Error, connection, transaction

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.models import Job, Link, Schedule, ScheduleRun
from hipq_django.schedules import declared
from hipq_django.schedules.firing import TRY_AGAIN, Firing
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.declaring import Declare
from tests.faults import IN_TURN, Faults, InTurn, breaking

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
HOURLY = hipq.Cron("0 * * * *", "UTC")
ECHO = hipq.NewJob("echo", {"n": 1})
THREADS, ROUNDS = 4, 5


@pytest.fixture(autouse=True)
def now() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def fire() -> int:
    return Firing(get_instance()).run()


def kinds(name: str = "s") -> list[tuple[str, datetime]]:
    rows = ScheduleRun.objects.filter(schedule__name=name).order_by("pk")
    return list(rows.values_list("kind", "due_time"))


# Several make the same schedule


def make() -> Schedule:
    return hipq.schedule("s", ECHO, HOURLY)


def make_in_a_transaction() -> Schedule:
    with transaction.atomic():
        row = make()
        hipq.enqueue("ask")  # the transaction is still usable
    return row


@pytest.mark.parametrize("step", [make, make_in_a_transaction])
def test_of_many_that_make_a_schedule_all_succeed(step: Callable[[], Schedule]) -> None:
    for _ in range(ROUNDS):
        Schedule.objects.all().delete()

        results = run_together(*[step] * THREADS)

        assert errors_of(results) == []
        assert {row.pk for row in results if isinstance(row, Schedule)} == {
            Schedule.objects.get().pk
        }


def test_of_many_workers_that_start_first_all_start(declare: Declare) -> None:
    for number in range(3):
        declare.task(f"task {number}", schedule=HOURLY)(lambda: None)
    for _ in range(ROUNDS):
        Schedule.objects.all().delete()

        results = run_together(*[lambda: declared.sync("default")] * THREADS)

        assert errors_of(results) == []
        assert Schedule.objects.count() == 3


@pytest.mark.postgres
def test_one_that_is_made_while_another_makes_it_is_edited(session: Session) -> None:
    hipq.enqueue("echo")  # else it is the job type that the other waits for
    session.begin()
    session(make)
    other = hipq.Every(hours=2)

    def commit_when_blocked() -> None:
        wait_until_blocked()
        session.commit()

    results = run_together(commit_when_blocked, lambda: hipq.schedule("s", ECHO, other))

    assert errors_of(results) == []
    assert Schedule.objects.get().every_seconds == other.every_seconds


# A due time, and somebody who changes the schedule


def edit() -> None:
    hipq.schedule("s", ECHO, hipq.Cron("30 * * * *", "UTC"))


def pause() -> None:
    hipq.pause_schedule("s")


def delete() -> None:
    hipq.unschedule("s")


def change_data() -> None:
    hipq.schedule("s", hipq.NewJob("echo", {"n": 2}), HOURLY)


CHANGES = [edit, pause, delete, change_data]
FIRST_WINS = {
    # The kinds of runs, and the data of jobs, if the change comes before the firing.
    edit: (["skipped"], []),
    pause: ([], []),
    delete: ([], []),
    change_data: (["fired"], [{"n": 2}]),
}


@pytest.fixture
def due(now: time_machine.Traveller) -> None:
    """A schedule that is due."""
    make()
    now.move_to(at(1))


@pytest.mark.parametrize("change", CHANGES)
def test_whoever_comes_first_to_a_due_time_wins(due: None, change: Callable[[], None]) -> None:
    results = run_together(change, fire, fire)
    fire()  # the next pass: both have passed over the schedule if the change had just locked it

    assert errors_of(results) == []
    jobs = [job.job_data for job in Job.objects.all()]
    found = ([kind for kind, _ in kinds()], jobs)
    fired_first = ([] if change is delete else ["fired"], [{"n": 1}])
    assert found in (fired_first, FIRST_WINS[change])
    assert {job.due_time for job in Job.objects.all()} <= {at(1)}


def test_of_a_due_time_and_a_run_by_hand_the_first_has_its_job(due: None) -> None:
    """With `overlap="skip"` the other one finds that job."""
    results = run_together(partial(hipq.run_schedule, "s"), fire)
    fire()  # the next pass: it has passed over the schedule if that was just locked

    assert Job.objects.count() == 1
    if errors := errors_of(results):
        assert "wait for its end, or cancel it" in str(errors)
        assert kinds() == [("fired", at(1))]
    else:
        assert [kind for kind, _ in kinds()] == ["manual", "skipped"]


@pytest.mark.postgres
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_waits_for_the_firing(
    session: Session, due: None, change: Callable[[], None]
) -> None:
    session.begin()
    assert session(fire) == 1

    def commit_when_blocked() -> None:
        wait_until_blocked()
        session.commit()

    assert errors_of(run_together(commit_when_blocked, change)) == []

    assert Job.objects.get().due_time == at(1)
    assert kinds() == ([] if change is delete else [("fired", at(1))])


@pytest.mark.postgres
@pytest.mark.parametrize("change", CHANGES)
def test_the_firing_passes_over_a_schedule_that_is_being_changed(
    session: Session, due: None, change: Callable[[], None]
) -> None:
    session.begin()
    session(change)

    assert fire() == 0
    session.commit()
    fire()

    jobs = [job.job_data for job in Job.objects.all()]
    assert ([kind for kind, _ in kinds()], jobs) == FIRST_WINS[change]


@pytest.mark.postgres
def test_a_due_time_that_another_worker_is_firing_is_passed_over(
    session: Session, due: None
) -> None:
    session.begin()
    assert session(fire) == 1

    assert fire() == 0  # it does not even wait
    session.commit()

    assert fire() == 0
    assert Job.objects.get().due_time == at(1)
    assert kinds() == [("fired", at(1))]


def run_now() -> str:
    try:
        return str(hipq.run_schedule("keyed"))
    except hipq.InvalidJobError as error:
        return str(error)


def backfill() -> str:
    hipq.backfill("keyed", at(-2), at(-1))
    return ScheduleRun.objects.get(schedule__name="keyed", kind="skipped").reason


@pytest.mark.postgres
@pytest.mark.parametrize("step", [run_now, backfill])
def test_a_key_that_another_just_takes_is_no_error_of_the_database(
    session: Session, step: Callable[[], str]
) -> None:
    hipq.schedule("keyed", hipq.NewJob("ask", job_key="k"), HOURLY)
    session.begin()
    holder = session(lambda: hipq.enqueue("ask", job_key="k"))

    def commit_when_blocked() -> str:
        wait_until_blocked()
        session.commit()
        return ""

    results = run_together(commit_when_blocked, step)

    assert errors_of(results) == []
    assert f"job {holder.pk} is initial" in str(results[1])


def test_what_cannot_be_fired_for_a_moment_is_still_on_time(now: time_machine.Traveller) -> None:
    spec = hipq.Cron("0 * * * *", "UTC", catch_up="none")
    made = hipq.schedule("s", ECHO, spec)
    Schedule.objects.filter(pk=made.pk).update(options={"priority": "none"})
    now.move_to(at(1))
    fire()
    assert Schedule.objects.get().problem != "NONE"

    Schedule.objects.filter(pk=made.pk).update(options={})
    now.shift(TRY_AGAIN + timedelta(seconds=1))
    fire()

    assert kinds() == [("fired", at(1))]


# The connection breaks


@pytest.fixture
def put_back() -> Callable[[], None]:
    """Put all rows back: schedules whose firing does all that it may do, and their live jobs."""
    overlaps = {"skip": "last", "wait": "last", "replace": "last", "in turn": "all"}
    for name, catch_up in overlaps.items():
        overlap = "skip" if name == "in turn" else name
        hipq.schedule(name, ECHO, hipq.Cron("0 * * * *", "UTC", overlap=overlap, catch_up=catch_up))
        hipq.run_schedule(name)
    hipq.schedule("first", ECHO, HOURLY)
    rows = [list(model._default_manager.all()) for model in (Schedule, ScheduleRun, Job)]

    def put_back() -> None:
        with transaction.atomic():
            for model in (Link, Job, ScheduleRun, Schedule):
                model._default_manager.all()._raw_delete("default")
            for given in rows:
                type(given[0])._default_manager.bulk_create(given)

    return put_back


def what_became() -> list[Any]:
    """Return the runs and jobs of the schedules, whatever their ids are."""
    runs = ScheduleRun.objects.order_by("schedule__name", "due_time", "kind")
    names = dict(Schedule.objects.values_list("pk", "name"))
    jobs = Job.objects.exclude(due_time=NOON).order_by("due_time")
    return [
        *runs.values_list("schedule__name", "kind", "due_time", "until", "count"),
        *sorted((names[job.schedule_id or 0], job.due_time, job.state) for job in jobs),
        *Schedule.objects.order_by("name").values_list("name", "next_time", "problem"),
        Link.objects.count(),
    ]


@IN_TURN
def test_each_statement_of_a_firing_may_break_the_connection(
    now: time_machine.Traveller,
    put_back: Callable[[], None],
    in_turn: InTurn,
) -> None:
    fire()  # the first look of a process also asks what the database has
    expected: list[Any] = []

    def break_at(moment: int) -> Faults:
        now.move_to(NOON)
        put_back()
        now.move_to(at(3))

        with breaking(moment) as faults, suppress(Error):
            fire()
        if faults.place:
            connection.close()
        while fire():
            pass

        expected[:] = expected or what_became()  # at first nothing breaks
        assert what_became() == expected, faults.place
        return faults

    in_turn(break_at)


# Two operators


def test_a_paused_schedule_keeps_its_reason_until_somebody_gives_another() -> None:
    make()
    hipq.pause_schedule("s", "the shop moves")

    assert hipq.pause_schedule("s").pause_reason == "the shop moves"
    assert hipq.pause_schedule("s", "the bank is closed").pause_reason == "the bank is closed"
    assert Schedule.objects.get().pause_reason == "the bank is closed"
