"""What our backend for `django.tasks` does beyond what all backends promise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from asgiref.sync import async_to_sync
from django.db import connection
from django.dispatch import Signal
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.log import RequireDebugTrue
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.checks import check_tasks
from hipq_django.exceptions import ArgumentsError, JobCancelled
from hipq_django.job_types import registry
from hipq_django.models import Job, JobType, Worker
from hipq_django.tasks_backend import names, running, task
from hipq_django.tasks_backend.backend import HipqBackend
from hipq_django.tasks_backend.extension import KIND
from hipq_django.tasks_backend.finding import task_at
from hipq_django.tasks_backend.names import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    logger,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from hipq_django.tasks_backend.results import result_of
from tests.declaring import Declare
from tests.factories import JobTypeFactory
from tests.hand_worker import HandWorker
from tests.listening import connected
from tests.running import run_due_jobs
from tests.testapp import tasks as module

pytestmark = pytest.mark.django_db

tasks: Any = module
"""Of whichever backend, for type checkers."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing is declared of tasks, as in a worker that has just started."""
    forget()
    tasks.CALLS.clear()
    yield
    forget()


def forget() -> None:
    for declared in registry.get_all_declared("default"):
        if declared.kind == KIND:
            registry.forget(declared)
    registry._not_found.clear()


def job_of(result: Any) -> Job:
    return Job.objects.select_related("queue", "job_type").get(pk=int(result.id))


def test_a_strict_instance_knows_the_tasks_that_others_have_enqueued(settings: Settings) -> None:
    settings.HIPQ = {"default": {"STRICT": True}}
    tasks.stubborn.enqueue(1)
    forget()

    assert hipq.enqueue("tests.testapp.tasks.stubborn", {"args": [2], "kwargs": {}})
    with pytest.raises(hipq.InvalidJobTypeError, match="no code of this process declares"):
        hipq.enqueue("tests.testapp.tasks.unknown")


def test_a_task_is_a_job_of_a_type_with_its_path() -> None:
    later = timezone.now() + timedelta(hours=1)
    result = tasks.tell.using(
        priority=30, queue_name="mail", run_after=later, timeout=5, throttle_factor=2,
        time_windows=["00:00-24:00"],
    ).enqueue(1, 2)  # fmt: skip

    job = job_of(result)
    assert (job.job_type.name, job.job_type.kind) == ("tests.testapp.tasks.tell", "django.tasks")
    assert (job.queue.name, job.priority, job.timeout) == ("mail", 70, 5)
    assert (job.scheduled_run_time, job.throttle_factor) == (later, 2)
    assert job.job_data == {"args": [1, 2], "kwargs": {}, "run_after": later.isoformat()}


@pytest.mark.usefixtures("frozen_time")  # else the last may be of a later second, and its turn too
def test_the_higher_priority_runs_first() -> None:
    for priority in (0, 100, -100, 1):
        tasks.add.using(priority=priority).enqueue(priority)

    run_due_jobs()

    assert [a for a, _ in tasks.CALLS] == [100, 1, 0, -100]


def test_run_after_may_be_a_timedelta_from_the_enqueue(
    frozen_time: time_machine.Traveller,
) -> None:
    in_two_hours = tasks.tell.using(run_after=timedelta(hours=2))
    frozen_time.shift(3_600)

    result = in_two_hours.enqueue(1)
    at_once = in_two_hours.using(run_after=timezone.now()).enqueue(2)

    assert job_of(result).scheduled_run_time == timezone.now() + timedelta(hours=2)
    assert result.task.run_after == timezone.now() + timedelta(hours=2)
    assert run_due_jobs() == 1
    at_once.refresh()
    assert at_once.status == TaskResultStatus.SUCCESSFUL


def test_only_tasks_are_imported_and_only_by_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write rows can make a worker import nothing but tasks."""
    tasks.add.enqueue(1)
    rows = JobType.objects.filter(kind="django.tasks")
    for path in ("os.system", "tests.testapp.tasks.CALLS", "tests.testapp.tasks.gone"):
        rows.update(name=path)
        forget()
        assert run_due_jobs() == 0
    rows.update(name="tests.testapp.tasks.tell", kind="")
    forget()
    assert run_due_jobs() == 0

    rows = JobType.objects.filter(name="tests.testapp.tasks.tell")
    rows.update(kind="django.tasks")
    assert run_due_jobs() == 1


def test_a_function_that_is_not_there_is_looked_for_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment = 100.0
    monkeypatch.setattr(registry, "time", SimpleNamespace(monotonic=lambda: moment))
    result = tasks.tell.enqueue(1)
    kept = tasks.tell
    forget()
    monkeypatch.delattr(tasks, "tell")

    assert run_due_jobs() == 0
    assert next(r.code for r in hipq.explain(job_of(result))) == "unknown_type"
    monkeypatch.setattr(tasks, "tell", kept, raising=False)
    moment += 59
    assert run_due_jobs() == 0  # not each time
    moment += 1
    assert run_due_jobs() == 1


def test_a_result_can_be_read_without_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    result = tasks.tell.using(queue_name="mail", priority=5).enqueue({"a": 1})
    run_due_jobs()
    monkeypatch.delattr(tasks, "tell")
    forget()

    found = task_backends["default"].get_result(result.id)

    assert (found.status, found.return_value) == (TaskResultStatus.SUCCESSFUL, {"a": 1})
    assert (found.task.module_path, found.task.queue_name) == ("tests.testapp.tasks.tell", "mail")
    assert found.task.priority == 5
    with pytest.raises(InvalidTask, match=r"no task at 'tests\.testapp\.tasks\.tell'"):
        found.task.call()


@pytest.mark.parametrize(("of_job", "told"), [(1_000, -100), (-1_000, 100)])
def test_a_priority_that_django_does_not_have_is_the_nearest_one(of_job: int, told: int) -> None:
    result = tasks.tell.enqueue(1)
    hipq.reprioritize(job_of(result), of_job)

    assert task_backends["default"].get_result(result.id).task.priority == told


@pytest.mark.conformance
def test_queries_of_a_result(django_assert_num_queries: Any) -> None:
    good, bad = tasks.tell.enqueue(1), tasks.fail.enqueue()
    run_due_jobs()

    for result, number in ((good, 1), (bad, 2)):
        with django_assert_num_queries(number):
            task_backends["default"].get_result(result.id)


def test_jobs_of_others_are_no_results() -> None:
    plain = hipq.enqueue("echo")
    other = tasks.tell.enqueue(1)
    JobType.objects.filter(name="tests.testapp.tasks.tell").update(instance="other")
    Job.objects.get(pk=int(other.id)).queue.__class__.objects.update(instance="other")

    for pk in (plain.pk, other.id):
        with pytest.raises(TaskResultDoesNotExist, match="pruned, or never existed"):
            task_backends["default"].get_result(str(pk))


def test_retries_are_attempts(finished: list[Any]) -> None:
    result = tasks.stubborn.enqueue(7)
    run_due_jobs(commit=True)
    result.refresh()

    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)
    assert [error.exception_class for error in result.errors] == [OSError] * 3
    assert len(set(result.worker_ids)) == 1
    assert result.started_at < result.last_attempted_at
    assert tasks.CALLS == [7] * 3
    assert [(r.id, r.status) for r in finished] == [(result.id, "FAILED")]
    assert job_of(result).timeout == 60


def test_a_result_that_cannot_be_stored_is_a_failure_from_the_first(finished: list[Any]) -> None:
    result = tasks.no_number.enqueue()
    run_due_jobs(commit=True)
    result.refresh()

    assert [error.exception_class for error in result.errors] == [hipq.ResultError]
    assert [(r.id, r.status) for r in finished] == [(result.id, "FAILED")]


@pytest.mark.django_db(transaction=True)
def test_workers_find_the_code_of_a_type_that_was_no_task_before() -> None:
    JobTypeFactory.create(name="tests.testapp.tasks.add")
    result = tasks.add.enqueue(1)
    forget()

    assert run_due_jobs() == 1
    result.refresh()
    assert result.return_value == 1


def test_a_unique_task_that_is_there_is_not_told_as_enqueued_again() -> None:
    told: list[str] = []
    with connected(lambda task_result, **_: told.append(task_result.id), task_enqueued):
        first, _ = tasks.stubborn.enqueue(1), tasks.stubborn.enqueue(1)
        other = tasks.stubborn.enqueue(2)

    assert told == [first.id, other.id]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (([1, 2], {"c": 3}), ([1], {"c": 3, "b": 2}), True),
        (([1, 2, 3], {}), ([1, 2], {}), False),
        (([], {}), ([], {}), True),  # its worker refuses what the function cannot take
        (([1], {}), ([1, 0], {}), False),  # a default that is given counts
    ],
)
def test_arguments_are_compared_as_the_function_takes_them(
    monkeypatch: pytest.MonkeyPatch, one: Any, other: Any, alike: bool
) -> None:
    decorator: Any = task
    taken = decorator(unique=True, takes_context=True)(_taken)
    monkeypatch.setattr(tasks, "_taken", taken, raising=False)

    ids = {taken.enqueue(*args, **kwargs).id for args, kwargs in (one, other)}

    assert len(ids) == (1 if alike else 2)


def _taken(context: Any, a: int, b: int = 0, *rest: int, c: int = 0, **more: int) -> None:
    """Take arguments in every way."""


_taken.__module__, _taken.__qualname__ = tasks.__name__, "_taken"


def test_a_snoozed_task_is_ready_again(finished: list[Any]) -> None:
    result = tasks.put_back.enqueue()
    run_due_jobs()
    result.refresh()

    assert (result.status, result.errors) == (TaskResultStatus.READY, [])
    assert finished == []


@pytest.mark.django_db(transaction=True)
def test_a_cancelled_task_has_failed(finished: list[Any]) -> None:
    result = tasks.tell.enqueue(1)
    hipq.cancel(job_of(result), "not needed")
    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert (error.exception_class, error.traceback) == (JobCancelled, "not needed")
    assert [(r.id, r.status) for r in finished] == [(result.id, "FAILED")]


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_came_before_the_end_of_the_function_is_told(finished: list[Any]) -> None:
    """It takes precedence over what the function returns."""
    result = tasks.tell.enqueue("text")
    worker = HandWorker()
    worker.run_pass()
    hipq.complete(job_of(result), "answer")
    worker.execute()
    worker.save()
    worker.work()
    result.refresh()

    assert [(r.status, r.return_value) for r in finished] == [("SUCCESSFUL", "answer")]
    assert result.return_value == "answer"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["return", "raise"])
def test_a_task_that_is_cancelled_between_its_end_and_the_commit_has_one_end(
    end: str, finished: list[Any]
) -> None:
    named = tasks.tell if end == "return" else tasks.fail
    result = named.enqueue("text")
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    hipq.cancel(job_of(result), "not needed")
    worker.save()
    result.refresh()

    assert [(r.status, r.errors[0].exception_class) for r in finished] == [("FAILED", JobCancelled)]
    assert result.status == "FAILED"


@pytest.mark.django_db(transaction=True)
def test_whoever_hears_of_an_end_finds_it_committed() -> None:
    found: list[Any] = []

    def look(task_result: Any, **_: Any) -> None:
        found.append(task_backends["default"].get_result(task_result.id).status)

    with connected(look, task_finished):
        tasks.tell.enqueue("text")
        tasks.fail.enqueue("text")
        HandWorker().work()

    assert sorted(found) == ["FAILED", "SUCCESSFUL"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("signal", [task_started, task_finished], ids=["started", "finished"])
def test_a_receiver_that_raises_harms_neither_the_task_nor_the_next_receiver(
    signal: Signal,
) -> None:
    heard: list[Any] = []

    def fail(**_: Any) -> None:
        raise ValueError("receiver")

    def note(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    result = tasks.tell.enqueue("text")
    with connected(fail, signal), connected(note, signal):
        HandWorker().work()
    result.refresh()

    assert result.status == TaskResultStatus.SUCCESSFUL
    assert heard == [result.id]


@pytest.mark.django_db(transaction=True)
def test_a_task_may_wait_for_an_answer(finished: list[Any]) -> None:
    result = tasks.ask.enqueue()
    run_due_jobs()
    result.refresh()
    assert result.status == TaskResultStatus.RUNNING

    hipq.complete(job_of(result), {"paid": True})
    result.refresh()

    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, {"paid": True})
    assert [(r.id, r.status) for r in finished] == [(result.id, "SUCCESSFUL")]


def test_the_last_worker_is_known_after_the_end() -> None:
    result = tasks.nothing.enqueue()
    worker = HandWorker()
    worker.work()
    result.refresh()

    assert job_of(result).last_worker_id == worker.row.pk
    assert result.worker_ids == [worker.row.name]
    Worker.objects.all().delete()
    result.refresh()
    assert result.worker_ids == [f"worker {worker.row.pk}"]


def test_what_workers_cannot_find_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.tell.func, "__qualname__", "renamed")
    with pytest.raises(InvalidTask, match=r"no task at 'tests\.testapp\.tasks\.renamed'"):
        tasks.tell.enqueue(1)
    assert not Job.objects.exists()


def test_what_is_at_the_path_instead_of_a_task_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "tests.testapp.tasks.tell"
    monkeypatch.setattr(tasks, "tell", names.task(backend="dummy")(tasks.tell.func))
    with pytest.raises(InvalidTask, match=f"^'{path}' is a task of another backend: workers find"):
        task_at(path)
    monkeypatch.setattr(tasks, "tell", tasks.tell.func)
    with pytest.raises(InvalidTask, match=f"^'{path}' is no task: workers find"):
        task_at(path)


@pytest.mark.parametrize("values", [{"retry": hipq.Never()}, {"unique": True}], ids=str)
def test_what_belongs_to_the_task_at_the_path(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask, match="set it there"):
        tasks.tell.using(**values).enqueue(1)


def test_a_path_that_is_the_name_of_a_job_type_is_refused(declare: Declare) -> None:
    declare("tests.testapp.tasks.tell")(lambda job: None)

    said = r"'tests\.testapp\.tasks\.tell' is declared by .*<lambda>, which is no task of django"
    with pytest.raises(hipq.InvalidJobTypeError, match=said):
        tasks.tell.enqueue(1)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": -1}, "timeout -1: give seconds above 0"),
        ({"retry": 3}, "retry=3 is not a policy; give Exponential"),
        ({"unique": "lives"}, "unique='lives' is unknown, did you mean 'live'"),
    ],
    ids=str,
)
def test_options_that_no_worker_could_use_are_refused_where_they_are_written(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidTask, match=said):
        task(**options)(tasks.tell.func)
    with pytest.raises(InvalidTask, match=said):
        tasks.tell.using(**options)


@pytest.mark.parametrize("value", [5, timedelta(days=-1), timedelta(days=36_500)])
def test_a_time_that_cannot_be_is_refused(value: Any) -> None:
    with pytest.raises(InvalidTask, match=r"run_after.*: give "):
        tasks.tell.using(run_after=value)


def test_an_argument_that_contains_itself_is_named() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(ValueError, match="argument 0 is nested too deeply or contains itself"):
        tasks.tell.enqueue(endless)
    with pytest.raises(hipq.ArgumentsError, match="tell: the arguments are not JSON: argument 0 "):
        hipq.new(tasks.tell, endless)
    assert not Job.objects.exists()


def test_a_text_for_the_queues_is_refused(settings: Settings) -> None:
    """Django takes each letter for a queue."""
    backend = "hipq_django.tasks_backend.HipqBackend"
    settings.TASKS = {"default": {"BACKEND": backend, "QUEUES": "mail"}}

    [found] = check_tasks()
    assert found.id == "hipq.E031"
    assert found.msg == "TASKS['default']['QUEUES']: 'mail' is text, not a list."


@pytest.fixture
def mailing(settings: Settings) -> Iterator[None]:
    """Let the backend store its jobs in an instance of its own."""
    backend = "hipq_django.tasks_backend.HipqBackend"
    settings.HIPQ = {"default": {}, "mailing": {}}
    options = {"INSTANCE": "mailing"}
    settings.TASKS = {"default": {"BACKEND": backend, "OPTIONS": options}}
    yield
    registry.forget(registry.get_declared("mailing", "tests.testapp.tasks.add"))  # type: ignore[arg-type]  # it is there


@pytest.mark.usefixtures("mailing")
def test_an_instance_of_its_own() -> None:
    result = tasks.add.enqueue(1)

    assert job_of(result).queue.instance == "mailing"
    assert run_due_jobs() == 0
    assert run_due_jobs(instance="mailing") == 1
    result.refresh()
    assert result.return_value == 1


class OwnBackend(HipqBackend):
    """A backend that a project has derived."""


def test_a_backend_that_is_derived_sends_all_signals_and_is_checked(
    settings: Settings, finished: list[Any]
) -> None:
    path = f"{__name__}.OwnBackend"
    settings.TASKS = {"default": {"BACKEND": path, "OPTIONS": {"INSTANSE": "x"}}}
    senders: set[Any] = set()
    signals = (task_enqueued, task_started, task_finished)
    with connected(lambda sender, **_: senders.add(sender), *signals):
        tasks.add.enqueue(1)
        run_due_jobs(commit=True)

    assert senders == {OwnBackend}
    assert [problem.id for problem in check_tasks()] == ["hipq.E030"]


# In schedules, chains and batches


def test_new_makes_a_job_of_a_task() -> None:
    first, last = hipq.chain(
        hipq.new(tasks.add, 1, b=2), hipq.new(tasks.tell.using(priority=9), "done")
    )
    with hipq.batch(then=hipq.new(tasks.nothing)) as batch:
        batch.enqueue(hipq.new(tasks.attempt))
    run_due_jobs()

    last.refresh_from_db()
    assert (last.result, last.priority) == ("done", 91)
    assert Job.objects.filter(outcome="succeeded").count() == 4
    assert hipq.get_result(first) == 3


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: hipq.new(tasks.add), "missing a required argument: 'a'"),
        (lambda: hipq.new(tasks.add, 1, c=2), "got an unexpected keyword argument 'c'"),
        (lambda: hipq.new(tasks.tell, object()), "tell: the arguments are not JSON"),
        (lambda: hipq.new(tasks.tell.using(unique=True), 1), "unique=True is given, but the task"),
        (lambda: hipq.new(len, 1), "new: <built-in function len> is no task of a backend"),
    ],
    ids=range(5),
)
def test_new_says_what_does_not_fit(make: Any, text: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        make()

    assert text in str(caught.value)


def rename_tell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the task `tell` another path, and keep the former as an alias."""
    forget()
    decorator: Any = task
    moved = decorator(aliases=["tests.testapp.tasks.tell"])(_moved)
    monkeypatch.setattr(tasks, "tell", None)
    monkeypatch.setattr(tasks, "_moved", moved, raising=False)
    return moved


@pytest.mark.django_db(transaction=True)
def test_results_under_the_former_path_are_those_of_the_task_with_the_alias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in a process that has not enqueued it yet; else they are those of another task."""
    before = tasks.tell.enqueue("old")
    moved = rename_tell(monkeypatch)
    moved.enqueue("new")
    run_due_jobs()
    forget()

    result = moved.get_result(before.id)

    assert result.task == moved
    assert result.return_value == "moved old"
    assert async_to_sync(moved.aget_result)(before.id) == result


def _moved(value: str) -> str:
    return f"moved {value}"


_moved.__module__, _moved.__qualname__ = tasks.__name__, "_moved"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs whose result a worker has made; those of a client are not among them."""
    jobs: list[Job] = []

    def note(job: Job, *args: Any) -> Any:
        jobs.append(job)
        return result_of(job, *args)

    monkeypatch.setattr(running, "result_of", note)
    return jobs


def test_a_result_is_made_only_for_those_who_hear_of_it(
    made: list[Job], caplog: pytest.LogCaptureFixture
) -> None:
    """For a quick task it takes longer than all else."""
    caplog.set_level(logging.WARNING, logger=logger.name)
    tasks.nothing.enqueue()
    tasks.tell.enqueue([1])
    assert run_due_jobs(commit=True) == 2
    assert made == []

    caplog.set_level(logging.INFO, logger=logger.name)
    tasks.tell.enqueue([2])
    assert run_due_jobs(commit=True) == 1
    assert len(made) == 1
    assert [r.getMessage().partition("state=")[2] for r in caplog.records] == [
        "RUNNING",
        "SUCCESSFUL",
    ]


def test_a_run_is_heard_by_whoever_would_read_its_lines(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """The logger is one of its own, since pytest takes the lines of all that are known."""
    for signal in (task_started, task_finished):
        monkeypatch.setattr(signal, "receivers", signal.receivers[:1])
    alone = logging.Logger("alone", logging.INFO)
    monkeypatch.setattr(names, "logger", alone)
    assert not names.is_run_heard()

    console = logging.NullHandler(logging.INFO)  # as of a project without settings for it
    console.addFilter(RequireDebugTrue())
    alone.addHandler(console)
    for debug in (True, False):
        settings.DEBUG = debug
        assert names.is_run_heard() is debug

    alone.parent = logging.Logger("above")
    for level, heard in ((logging.ERROR, False), (logging.INFO, True)):
        alone.parent.addHandler(logging.NullHandler(level))
        assert names.is_run_heard() is heard

    alone.parent = None
    monkeypatch.setattr(logging.Logger, "callHandlers", lambda *_: None)  # as Sentry's
    assert names.is_run_heard()


def test_a_failure_that_only_the_log_hears_is_there_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger=logger.name)
    tasks.fail.enqueue("oh")
    run_due_jobs(commit=True)

    [record] = [record for record in caplog.records if record.name == logger.name]
    assert record.exc_info is not None
    assert repr(record.exc_info[1]) == "ValueError('oh')"


@pytest.mark.django_db(transaction=True)
def test_the_failures_of_a_batch_are_looked_up_together(finished: list[Any]) -> None:
    results = [tasks.fail.enqueue(f"no {number}") for number in range(20)]
    worker = HandWorker()
    worker.run_pass()
    worker.execute()

    with CaptureQueriesContext(connection) as queries:
        worker.save()

    assert len(queries) <= 12
    assert [(r.id, r.status) for r in finished] == [(r.id, "FAILED") for r in results]
    for number, result in enumerate(finished):
        assert f"no {number}" in result.errors[0].traceback
        assert result == task_backends["default"].get_result(result.id)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"foo": 1}, "jobs have data like"),
        ({"args": [], "kwargs": {"nothing": 1}}, "missing a required argument"),
    ],
)
def test_data_that_no_worker_could_give_to_the_function_is_refused(data: Any, problem: str) -> None:
    """By every door: what a schedule is given, too."""
    name = tasks.tell.module_path
    tasks.tell.enqueue(1)

    with pytest.raises(hipq.ArgumentsError, match=problem):
        hipq.enqueue(name, data)
    with pytest.raises(hipq.InvalidScheduleError, match=problem):
        hipq.schedule("nightly", hipq.NewJob(name, data), "0 2 * * *")


@pytest.mark.parametrize("data", [{"token": "S3CRET"}, {"args": [], "kwargs": {"it": "S3CRET"}}])
def test_data_that_are_refused_are_not_quoted(data: Any) -> None:
    """They may be sensitive."""
    tasks.tell.enqueue(1)

    with pytest.raises(hipq.ArgumentsError) as raised:
        hipq.enqueue(tasks.tell.module_path, data)
    assert "S3CRET" not in str(raised.value)


def test_data_that_fit_the_function_are_taken() -> None:
    name = tasks.tell.module_path
    tasks.tell.enqueue(1)

    job = hipq.enqueue(name, {"args": [8], "kwargs": {}})
    hipq.schedule("nightly", hipq.new(tasks.tell, 5), "0 2 * * *")
    run_due_jobs()

    assert task_backends["default"].get_result(str(job.pk)).return_value == 8
