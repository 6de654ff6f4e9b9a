"""Runs a task as the handler of its job, and sends the signals of `django.tasks`.

`task_started` is sent for each attempt, `task_finished` when the job has ended: once, after the
commit, whoever ended it. After a failure it is sent inside the exception's handler, for receivers
that ask for the exception, unless that is not known any more: where the project's own policy gave
the job up, or where no code has raised. Neither signal is sent where nobody would hear it: to make
the result of a task takes as long as all else that is done for a quick job. A receiver that raises
harms neither the task nor the other receivers; Django logs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any

from django.utils import timezone

from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.retries import WAIT, Snooze, sole
from hipq_django.domain.states import Outcome
from hipq_django.domain.validation import checked_result
from hipq_django.models import Job
from hipq_django.tasks_backend import configured
from hipq_django.tasks_backend.hipq_task import HipqTask
from hipq_django.tasks_backend.names import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    is_run_heard,
    normalize_json,
    task_finished,
    task_started,
)
from hipq_django.tasks_backend.results import result_of

_END = "_end_of_task"
"""What a job that ran here is told to have ended with, once that is committed.

The exception, the finished result, or True where nobody need be told. What the function returned
counts only if the job succeeded by it: the database may refuse it, say. Of a job that is cancelled,
answered or given to another worker meanwhile others tell, who have a copy of their own.
"""


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
        setattr(job, _END, sole(error))
        raise
    if value is WAIT or isinstance(value, WAIT_FOR):
        return value  # the answer ends it
    setattr(job, _END, True if result is None else _succeeded(result, value and value.value))
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


# What is told


def _begun(task: HipqTask, job: Job) -> TaskResult[Any, Any]:
    """Tell that an attempt has begun; return its result."""
    backend = configured.backend_of(job.queue.instance)
    result = result_of(job, task, backend.alias, type(task))
    task_started.send_robust(type(backend), task_result=result)
    return result


def _succeeded(result: TaskResult[Any, Any], value: Any) -> TaskResult[Any, Any]:
    """Return the result as that of a success."""
    ended = {
        "status": TaskResultStatus.SUCCESSFUL,
        "finished_at": timezone.now(),
        "_return_value": value,
    }
    for name, now in ended.items():
        object.__setattr__(result, name, now)
    return result


def is_heard(job: Job) -> bool:
    """Return whether somebody is to be told that this job has ended."""
    return getattr(job, _END, None) is not True or job.outcome != Outcome.SUCCEEDED


def tell_of_end(job: Job, ends: Callable[[], Mapping[int, Job]], **_: Any) -> None:
    """Send `task_finished` for a job that has ended; `ends` reads how, together with others."""
    end = getattr(job, _END, None)
    if end is not None:
        delattr(job, _END)  # it may keep an exception, with all its frames
    backend = configured.backend_of(job.queue.instance)
    if isinstance(end, TaskResult) and job.outcome == Outcome.SUCCEEDED:
        task_finished.send_robust(type(backend), task_result=end)
        return
    error = end if isinstance(end, BaseException) else None
    stored = ends().get(job.pk)
    # One that was deleted meanwhile has no result, which the second way says.
    result = backend.result_of(stored) if stored else backend.get_result(str(job.pk))
    _send_handling(error, partial(task_finished.send_robust, type(backend), task_result=result))


def _send_handling(error: BaseException | None, send: Callable[[], Any]) -> None:
    """Send inside the handler of an exception, if there is one."""
    if error is None:
        send()
        return
    place = error.__traceback__
    try:
        raise error
    except BaseException:
        BaseException.with_traceback(error, place)  # without the step that was just added
        send()
