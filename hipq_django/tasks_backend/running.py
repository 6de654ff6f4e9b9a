"""Runs a task as the handler of its job, and sends the signals of `django.tasks`.

`task_started` is sent for each attempt, `task_finished` when the job ends: by the thread that ran
it, inside the exception's handler where it failed, or after the commit where something else ended
it (a cancel, a timeout, a lost worker). Neither is sent where nobody would hear it: to make the
result of a task takes as long as all else that is done for a quick job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from django.db import Error
from django.utils import timezone

from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.retries import WAIT, Failure, GiveUp, Snooze, class_names, decide
from hipq_django.domain.states import State
from hipq_django.domain.tracebacks import format_exception
from hipq_django.domain.validation import checked_result
from hipq_django.models import Job
from hipq_django.tasks_backend import configured
from hipq_django.tasks_backend.hipq_task import HipqTask
from hipq_django.tasks_backend.names import (
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    is_run_heard,
    normalize_json,
    path_of,
    task_finished,
    task_started,
)
from hipq_django.tasks_backend.results import result_of
from hipq_django.transitions.history import failures_before
from hipq_django.transitions.updates import rows_of

if TYPE_CHECKING:
    from hipq_django.tasks_backend.backend import HipqBackend

MOST_REMEMBERED = 10_000

_told: dict[tuple[str, int], None] = {}
"""The jobs of which this process has said that they ended, until that is committed."""


def handler_of(task: HipqTask) -> Callable[[Job], Any]:
    """Return the handler of a task's jobs."""
    # What `Task.call` asks for each call, as long as the call itself takes.
    call = task.call if iscoroutinefunction(task.func) else task.func

    @wraps(task.func)
    def handler(job: Job) -> Any:
        return _run(task, call, job)

    return handler


def _run(task: HipqTask, call: Callable[..., Any], job: Job) -> Any:
    result = _begun(task, job) if task.takes_context or is_run_heard() else None
    try:
        value = _called(task, call, job, result)
    except (KeyboardInterrupt, Snooze):
        raise
    except BaseException as error:
        if _is_last(task, job, error) and _counts(job):
            _tell_of_failure(job, result or _result(task, job), error)
        raise
    if value is WAIT or isinstance(value, WAIT_FOR):
        return value  # the answer ends it
    _tell_of_success(job, result, value and value.value)
    return value


def _called(
    task: HipqTask, call: Callable[..., Any], job: Job, result: TaskResult[Any, Any] | None
) -> Any:
    """Return what the function returns, checked; None, and that an answer ends it, as they are."""
    args, kwargs = job.job_data["args"], job.job_data["kwargs"]
    if task.takes_context:
        args = [TaskContext(task_result=result), *args]  # type: ignore[arg-type]  # it has begun
    value = call(*args, **kwargs)
    if value is None or value is WAIT or isinstance(value, WAIT_FOR):
        return value
    return checked_result(task.module_path, normalize_json(value))


def _is_last(task: HipqTask, job: Job, error: BaseException) -> bool:
    """Return whether the policy gives the job up after this failure."""
    before = failures_before({job.pk: job.attempt}, job.using)[job.pk]
    failure = Failure(before + 1, 0, class_names(type(error)))
    return isinstance(decide(task.retry, failure), GiveUp)


def _counts(job: Job) -> bool:
    """Return whether the end of this attempt will be the job's, as far as is known now.

    It will not be if the job was cancelled, answered, given up or begun anew meanwhile: whoever did
    that tells of its end.
    """
    try:
        rows = rows_of(job.using, [job.id]).filter(attempt=job.attempt, has_pending_answer=False)
        return bool(rows.exclude(state=State.FINAL).exists())
    except Error:  # as it is known, then: to fail here would cost the job its result
        return True


# What is told


def _begun(task: HipqTask, job: Job) -> TaskResult[Any, Any]:
    """Tell that an attempt has begun; return its result."""
    result = _result(task, job)
    task_started.send(_sender(job), task_result=result)
    return result


def _result(task: HipqTask, job: Job) -> TaskResult[Any, Any]:
    return result_of(job, task, configured.backend_of(job.queue.instance).alias, type(task))


def _tell_of_success(job: Job, result: TaskResult[Any, Any] | None, value: Any) -> None:
    """Tell whoever hears it; where nobody does, nobody need be told later either."""
    if result is None or _counts(job):
        _note_told(job)
        if result is not None:
            _finish(job, result, TaskResultStatus.SUCCESSFUL, value)


def _tell_of_failure(job: Job, result: TaskResult[Any, Any], error: BaseException) -> None:
    trace = format_exception(error)
    result.errors.append(TaskError(exception_class_path=path_of(type(error)), traceback=trace))
    _note_told(job)
    _finish(job, result, TaskResultStatus.FAILED)


def _note_told(job: Job) -> None:
    """Note that nobody need be told of the end of this job once it is committed."""
    if len(_told) >= MOST_REMEMBERED:  # of jobs that others had taken over meanwhile
        _told.clear()
    _told[job.using, job.id] = None


def _finish(
    job: Job, result: TaskResult[Any, Any], status: TaskResultStatus, value: Any = None
) -> None:
    ended = {"status": status, "finished_at": timezone.now(), "_return_value": value}
    for name, now in ended.items():
        object.__setattr__(result, name, now)
    task_finished.send(_sender(job), task_result=result)


def _sender(job: Job) -> type[HipqBackend]:
    return type(configured.backend_of(job.queue.instance))


def untold(jobs: Sequence[Job], using: str) -> list[Job]:
    """Return those of the jobs that ended otherwise than by their function."""
    return [job for job in jobs if _told.pop((using, job.id), job) is job]


def tell_of_end(job: Job, **_: Any) -> None:
    """Send `task_finished` for such a job."""
    backend = configured.backend_of(job.queue.instance)
    task_finished.send(type(backend), task_result=backend.get_result(str(job.pk)))
