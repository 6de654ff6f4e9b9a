"""What `django.tasks` promises, asked of Django's own backends and of ours alike."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from hipq_django.tasks_backend.hipq_task import HipqTask
from hipq_django.tasks_backend.names import (
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tests.listening import connected
from tests.running import run_due_jobs
from tests.testapp import tasks

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

Named = Callable[[str], HipqTask]


@pytest.fixture(params=["dummy", "default"])
def named(request: pytest.FixtureRequest) -> Iterator[Named]:
    """The tasks for a backend that keeps results: Django's Dummy, and ours."""
    yield lambda name: getattr(tasks, name).using(backend=request.param)
    if request.param == "dummy":
        dummy: Any = task_backends["dummy"]
        dummy.clear()


@pytest.fixture(params=["immediate", "default"])
def done(request: pytest.FixtureRequest) -> Callable[..., TaskResult[Any, Any]]:
    """Enqueues a task, and returns its result once it has run."""

    def run(name: str, *args: Any, **kwargs: Any) -> TaskResult[Any, Any]:
        result = getattr(tasks, name).using(backend=request.param).enqueue(*args, **kwargs)
        if request.param == "default":
            run_due_jobs(commit=True)
            result.refresh()
        return result  # type: ignore[no-any-return]  # of whichever package

    return run


@pytest.fixture
def signals() -> Iterator[list[tuple[str, str, bool]]]:
    """The signals that were sent: their name, the status, and whether in an exception's handler."""
    sent: list[tuple[str, str, bool]] = []
    names = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}

    def note(task_result: Any, signal: Any, **_: Any) -> None:
        sent.append((names[signal], str(task_result.status), sys.exc_info()[0] is not None))

    with connected(note, *names):
        yield sent


def test_a_fresh_result_is_ready(named: Named) -> None:
    before = timezone.now()
    result = named("add").enqueue(1, b=(2, 3))

    assert result.status == TaskResultStatus.READY
    assert isinstance(result.id, str)
    assert (result.args, result.kwargs) == ([1], {"b": [2, 3]})
    assert result.enqueued_at is not None
    assert before - timedelta(seconds=1) <= result.enqueued_at <= timezone.now()
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert result.is_finished is False
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


async def _enqueue(named: Named) -> Any:
    result = await named("add_later").aenqueue(1)
    again = await named("add_later").aget_result(result.id)
    await again.arefresh()
    return result, again


@pytest.mark.django_db(transaction=True)
def test_async_code_enqueues_and_reads(named: Named) -> None:
    from asgiref.sync import async_to_sync

    result, again = async_to_sync(_enqueue)(named)

    assert (again.id, again.status, again.args) == (result.id, TaskResultStatus.READY, [1])


def test_a_result_is_found_by_its_id_and_its_task(named: Named) -> None:
    result = named("tell").enqueue({"a": b"text"})

    found = named("tell").get_result(result.id)
    assert (found.id, found.args) == (result.id, [{"a": "text"}])
    assert found.task.func is tasks.tell.func
    assert found.backend == result.backend
    backend = named("tell").get_backend()
    assert backend.get_result(result.id).task.module_path == "tests.testapp.tasks.tell"
    with pytest.raises(Exception, match="does not match"):
        named("add").get_result(result.id)


@pytest.mark.parametrize("unknown", ["", "1" * 40, "-1", "one", "003", "１"])  # noqa: RUF001 - a digit, but not ours
def test_an_unknown_id_is_no_result(named: Named, unknown: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        named("tell").get_result(unknown)


@pytest.mark.parametrize("value", [object(), b"\xff"])
def test_what_is_not_json_is_refused(named: Named, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        named("tell").enqueue(value)


def test_a_function_inside_another_is_no_task(named: Named) -> None:
    alias = named("tell").backend

    def inside() -> None: ...

    for function in (inside, lambda: None):
        with pytest.raises(InvalidTask):
            task(backend=alias)(function)


@pytest.mark.parametrize(
    "values",
    [{"priority": 101}, {"priority": 1.5}, {"queue_name": "nobody's"}],
    ids=str,
)
def test_invalid_values_are_refused(named: Named, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask):
        named("tell").using(**values)


def test_a_naive_time_is_refused(named: Named) -> None:
    with pytest.raises(InvalidTask, match="aware"):
        named("tell").using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused


def test_using_changes_a_copy(named: Named) -> None:
    plain, at = named("tell"), datetime(2030, 1, 1, tzinfo=UTC)
    other = plain.using(priority=7, queue_name="mail", run_after=at)

    assert (plain.priority, plain.queue_name, plain.run_after) == (0, "default", None)
    found = other.get_result(other.enqueue(1).id)
    assert (found.task.priority, found.task.queue_name, found.task.run_after) == (7, "mail", at)


def test_tasks_can_be_pickled(named: Named) -> None:
    """By their path; so a task that another one is made of keeps its values."""
    plain = named("tell").using(priority=3)

    assert pickle.loads(pickle.dumps(plain)) == plain


def test_an_enqueue_is_told_once(named: Named, signals: list[Any]) -> None:
    named("tell").enqueue(1)

    assert signals == [("enqueued", "READY", False)]


@pytest.mark.django_db(databases=["default", "other"])
def test_all_is_supported() -> None:
    backend = task_backends["default"]

    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    call_command("check")


@pytest.mark.parametrize(
    ("name", "args", "value"),
    [
        ("add", (1, 2), 3),
        ("add_later", (3, 4), 7),
        ("nothing", (), None),
        ("tell", ((1, (2,)),), [1, [2]]),
    ],
)
def test_a_task_that_returns(done: Any, name: str, args: Any, value: Any) -> None:
    result = done(name, *args)

    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.is_finished
    assert result.return_value == value
    assert (result.attempts, len(result.worker_ids), result.errors) == (1, 1, [])
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [("fail", ValueError, "ValueError: no"), ("leave", SystemExit, "SystemExit: 3"),
     ("odd", TypeError, "Unsupported type")],
)  # fmt: skip
def test_a_task_that_raises(done: Any, name: str, kind: type, text: str) -> None:
    result = done(name)

    assert result.status == TaskResultStatus.FAILED
    assert result.is_finished
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    [error] = result.errors
    assert error.exception_class is kind
    assert text in error.traceback
    assert error.traceback.startswith("Traceback")
    assert len(result.worker_ids) == 1


def test_a_task_sees_its_context(done: Any) -> None:
    result = done("attempt")

    assert result.return_value == {"attempt": 1, "id": result.id}


def test_the_signals_of_a_success(done: Any, signals: list[Any]) -> None:
    done("nothing")

    told = [(name, status) for name, status, _ in signals]
    assert told == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]


def test_the_signals_of_a_failure(done: Any, signals: list[Any]) -> None:
    done("fail")

    assert [name for name, _, _ in signals] == ["enqueued", "started", "finished"]
    assert signals[-1] == ("finished", "FAILED", True)
