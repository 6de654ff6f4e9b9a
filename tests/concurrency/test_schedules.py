"""Several connections about the same schedules: each due time is one job, whoever is quicker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
import time_machine
from django.db import Error, connection, transaction
from django.test import Client

import hipq_django as hipq
from hipq_django.admin.row_actions import RowActions
from hipq_django.conf.instances import get_instance
from hipq_django.database import isolation
from hipq_django.models import Job, Link, Schedule, ScheduleRun
from hipq_django.schedules import declared, firing as firing_module
from hipq_django.schedules.firing import LOOK_SECONDS, TRY_AGAIN, Firing
from tests.admin_pages import act, history, messages_of, press
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


@pytest.mark.postgres
def test_a_change_that_is_rolled_back_loses_no_due_time(session: Session, due: None) -> None:
    session.begin()
    session(edit)
    assert fire() == 0
    session.roll_back()

    assert fire() == 1
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


@pytest.mark.postgres
def test_a_due_time_whose_key_another_just_takes_is_not_put_off_for_long(
    session: Session, now: time_machine.Traveller
) -> None:
    spec = hipq.Cron("0 * * * *", "UTC", catch_up="none")
    hipq.schedule("keyed", hipq.NewJob("ask", job_key="k"), spec)
    hipq.schedule("s", ECHO, spec)
    now.move_to(at(1))
    session.begin()
    session(lambda: hipq.enqueue("ask", job_key="k"))

    fire()  # it does not wait for the other transaction for long
    assert (kinds("keyed"), kinds("s")) == ([], [("fired", at(1))])
    firing, began = Firing(get_instance()), time.monotonic()
    assert firing.run() == 0
    assert firing.due_at >= began + LOOK_SECONDS  # each look waits for that lock
    session.roll_back()
    now.shift(timedelta(seconds=1))
    fire()

    assert Schedule.objects.get(name="keyed").problem == "NONE"
    assert kinds("keyed") == [("fired", at(1))]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many schedules were fired together, or were to be, each time."""
    tried: list[int] = []
    fire_all = firing_module.fire

    def note(rows: Sequence[Schedule], *args: Any) -> None:
        tried.append(len(rows))
        fire_all(rows, *args)

    monkeypatch.setattr(firing_module, "fire", note)
    return tried


@pytest.mark.postgres
def test_schedules_that_wait_for_a_lock_hide_none_behind_them(
    session: Session, now: time_machine.Traveller, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing_module, "PAGE_SIZE", 2)
    monkeypatch.setattr(isolation, "LEAST_PAUSE", 1.0)
    unbuilt = firing_module._locked_due.__wrapped__  # type: ignore[attr-defined]  # by `wraps`
    monkeypatch.setattr(firing_module, "_locked_due", unbuilt)
    for number in range(2):
        hipq.schedule(f"waits{number}", hipq.NewJob("ask", job_key=f"k{number}"), HOURLY)
    hipq.schedule("behind", ECHO, HOURLY)
    Schedule.objects.filter(name="behind").update(next_time=at(1) + timedelta(seconds=1))
    now.move_to(at(1.5))
    session.begin()
    for number in range(2):
        session(partial(hipq.enqueue, "ask", job_key=f"k{number}"))
    firing = Firing(get_instance())

    fired = [firing.run(), firing.run()]
    passed_over = firing.run()
    session.roll_back()

    assert (fired, passed_over) == ([0, 1], 0)
    assert tried == [2, 1, 1, 1]
    assert len(kinds("behind")) == 1
    assert Firing(get_instance()).run() == 2


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
@pytest.mark.parametrize("is_broken_row_there", [False, True])
def test_each_statement_of_a_firing_may_break_the_connection(
    now: time_machine.Traveller,
    put_back: Callable[[], None],
    is_broken_row_there: bool,
    in_turn: InTurn,
) -> None:
    fire()  # the first look of a process also asks what the database has
    expected: list[Any] = []

    def break_at(moment: int) -> Faults:
        now.move_to(NOON)
        put_back()
        if is_broken_row_there:
            Schedule.objects.filter(name="first").update(cron="61 * * * *")
            Schedule.objects.exclude(name__in=["first", "replace", "skip"]).delete()
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


OTHERS = {
    "pause": partial(hipq.pause_schedule, "s", "the shop moves"),
    "resume": partial(hipq.resume_schedule, "s"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("do", [press, act], ids=["button", "list"])
def test_of_two_operators_in_the_same_instant_the_second_changes_nothing(
    name: str, do: Callable[..., Any], admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    if name == "resume":
        hipq.pause_schedule("s")
    other, looked_at, is_useless = Session(), count(), RowActions._is_useless

    def look(self: RowActions, *args: Any) -> bool:
        found = is_useless(self, *args)
        if next(looked_at) == 0:
            other(OTHERS[name])
        return found

    monkeypatch.setattr(RowActions, "_is_useless", look)
    response = do(admin_client, name, Schedule.objects.get())
    other.close()

    assert "schedule s was left as it is" in messages_of(response)[0]
    assert history(Schedule.objects.get()) == []
    assert Schedule.objects.get().pause_reason == ("the shop moves" if name == "pause" else "NONE")


def test_a_paused_schedule_keeps_its_reason_until_somebody_gives_another() -> None:
    make()
    hipq.pause_schedule("s", "the shop moves")

    assert hipq.pause_schedule("s").pause_reason == "the shop moves"
    assert hipq.pause_schedule("s", "the bank is closed").pause_reason == "the bank is closed"
    assert Schedule.objects.get().pause_reason == "the bank is closed"
