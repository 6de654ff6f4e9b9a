"""Runs a task as the handler of its job, and sends the signals of `django.tasks`.

`task_started` is sent for each attempt, `task_finished` when the job ends: by the thread that ran
it, inside the exception's handler where it failed, or after the commit where something else ended
it (a cancel, a timeout, a lost worker).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.utils import timezone

from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.retries import WAIT, Failure, GiveUp, Snooze, class_names, decide
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
    normalize_json,
    path_of,
    task_finished,
    task_started,
)
from hipq_django.tasks_backend.results import result_of
from hipq_django.transitions.history import failures_before

MOST_REMEMBERED = 10_000

_told: dict[tuple[str, int], None] = {}
"""The jobs of which this process has said that they ended, until that is committed."""


def handler_of(task: HipqTask) -> Callable[[Job], Any]:
    """Return the handler of a task's jobs."""

    @wraps(task.func)
    def handler(job: Job) -> Any:
        return _run(task, job)

    return handler


def _run(task: HipqTask, job: Job) -> Any:
    backend = configured.backend_of(job.queue.instance)
    result = result_of(job, task, backend.alias, type(task))
    task_started.send(type(backend), task_result=result)
    arguments = result.args
    if task.takes_context:
        arguments = [TaskContext(task_result=result), *arguments]
    try:
        value = task.call(*arguments, **result.kwargs)
        if value is WAIT or isinstance(value, WAIT_FOR):
            return value  # the answer ends it
        value, _ = checked_result(task.module_path, normalize_json(value))
    except (KeyboardInterrupt, Snooze):
        raise
    except BaseException as error:
        if _is_last(task, job, error):
            _finish(backend, job, result, TaskResultStatus.FAILED, error=error)
        raise
    _finish(backend, job, result, TaskResultStatus.SUCCESSFUL, value)
    return value


def _is_last(task: HipqTask, job: Job, error: BaseException) -> bool:
    """Return whether the policy gives the job up after this failure."""
    before = failures_before({job.pk: job.attempt}, job.using)[job.pk]
    failure = Failure(before + 1, 0, class_names(type(error)))
    return isinstance(decide(task.retry, failure), GiveUp)


def _finish(
    backend: Any,
    job: Job,
    result: TaskResult[Any, Any],
    status: TaskResultStatus,
    value: Any = None,
    *,
    error: BaseException | None = None,
) -> None:
    ended = {"status": status, "finished_at": timezone.now(), "_return_value": value}
    for name, now in ended.items():
        object.__setattr__(result, name, now)
    if error is not None:
        trace = format_exception(error)
        result.errors.append(TaskError(exception_class_path=path_of(type(error)), traceback=trace))
    if len(_told) >= MOST_REMEMBERED:  # of jobs that others had taken over meanwhile
        _told.clear()
    _told[job.using, job.pk] = None
    task_finished.send(type(backend), task_result=result)


def tell_of_end(job: Job) -> None:
    """Send `task_finished` for a job that ended otherwise than by its function."""
    if (job.using, job.pk) in _told:
        del _told[job.using, job.pk]
        return
    backend = configured.backend_of(job.queue.instance)
    task_finished.send(type(backend), task_result=backend.get_result(str(job.pk)))
