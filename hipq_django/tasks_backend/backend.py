"""The backend of `django.tasks`: a task is a job, a queue name is the name of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from hipq_django.api.enqueueing import enqueue_new
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.domain.drafts import BoundJob, NewJob
from hipq_django.domain.validation import checked_delay, checked_name, id_from
from hipq_django.exceptions import InvalidJobError, InvalidJobTypeError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Job
from hipq_django.sharding import routing
from hipq_django.signals import send
from hipq_django.tasks_backend.configured import instance_of
from hipq_django.tasks_backend.extension import KIND, TASKS
from hipq_django.tasks_backend.finding import (
    DeclaredTask,
    check_options,
    declare,
    task_at,
)
from hipq_django.tasks_backend.hipq_task import OF_THE_CODE, HipqTask
from hipq_django.tasks_backend.names import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from hipq_django.tasks_backend.results import FIRST_PRIORITY, find_job, result_of, stored_ends
from hipq_django.tasks_backend.running import is_heard, tell_of_end


class HipqBackend(BaseTaskBackend):
    """Enqueues tasks as jobs of an instance, in the caller's transaction.

    `OPTIONS["INSTANCE"]` names the instance; default: "default". Raise `InvalidTask` for a task
    that workers could not find under its path.
    """

    task_class = HipqTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)  # type: ignore[arg-type]  # it only reads
        self.instance = instance_of(params)
        if isinstance(params.get("QUEUES"), str):  # which a check reports, once tasks are imported
            self.queues = set()
        self._valid: HipqTask | None = None

    def validate_task(self, task: Any) -> None:
        """Raise `InvalidTask` where the task cannot be a job, by its queue or its options, say."""
        if not isinstance(task.run_after, datetime | None):
            raise InvalidTask(
                f"run_after={task.run_after!r:.100}: give an aware datetime, or to using() a "
                "timedelta from the enqueue."
            )
        super().validate_task(task)
        try:
            checked_name("queue", task.queue_name)
            if task.delay is not None:
                checked_delay(task.delay, "run_after")
            check_options(task)
        except (InvalidJobError, InvalidJobTypeError) as error:
            raise InvalidTask(str(error)) from error

    def enqueue(  # type: ignore[override]  # its own tasks
        self, task: HipqTask, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[Any, Any]:
        """Enqueue a task; return its result, which is that of a live job if it is unique."""
        new = self.new_job(task, args, kwargs)
        job = enqueue_new(new, instance=self.instance)
        result = result_of(job, task, self.alias, self.task_class)
        if not job.conflict:
            task_enqueued.send(type(self), task_result=result)
        return result

    def new_job(self, task: HipqTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """Return the job of a task and its arguments, which is not stored yet.

        Raise `InvalidTask`; `TypeError` or `ValueError` for arguments that have no place in JSON.
        The values of the others are checked, and copied, when the job is built.
        """
        if task is not self._valid:  # it is frozen, and mostly the one of the call before
            self.validate_task(task)
            self._valid = task
        path = self.make_known(task)
        after = task.run_after
        if task.delay is not None:
            after = clock.now(get_instance(self.instance).database) + task.delay
        data = {
            "args": [_normalized(place, value) for place, value in enumerate(args)],
            "kwargs": {name: _normalized(name, value) for name, value in kwargs.items()},
            "run_after": after.isoformat() if after else None,
        }
        return BoundJob(
            path, data, queue=task.queue_name, priority=FIRST_PRIORITY - task.priority,
            scheduled_run_time=after, timeout=task.timeout, throttle_factor=task.throttle_factor,
            time_windows=task.time_windows, shard_key=task.shard_key, instance=self.instance,
        )  # fmt: skip

    def make_known(self, task: HipqTask) -> str:
        """Let this process find the task by its path, which is returned, and by its aliases.

        Raise `InvalidTask` where workers could not find it.
        """
        path = task.module_path
        declare(_found(task, path), self.instance)
        return path

    def get_result(self, result_id: str) -> TaskResult[Any, Any]:
        """Return the result of a task by its id; raise `TaskResultDoesNotExist`."""
        job, pk = None, id_from(result_id)
        if pk is not None:
            job = find_job(pk, self.instance, KIND, routing.of_id(self.instance, pk))
        if job is None:
            raise TaskResultDoesNotExist(
                f"There is no task result {result_id!r:.100}: it was pruned, or never existed."
            )
        return self.result_of(job)

    def result_of(self, job: Job) -> TaskResult[Any, Any]:
        """Return the result of a task by its job, as that was read."""
        path = job.job_type.name
        known = get_declared(self.instance, path)  # also where that is an alias
        task = known.task if isinstance(known, DeclaredTask) else _task_or_none(path)
        return result_of(job, task, self.alias, self.task_class)

    def check(self, **kwargs: Any) -> list[Any]:
        """Return nothing: `hipq_django.checks` looks at the setting TASKS."""
        return []


def _normalized(name: object, value: Any) -> Any:
    """Return an argument as JSON; raise `TypeError` or `ValueError` if it is none."""
    try:
        return normalize_json(value)
    except RecursionError as error:
        raise ValueError(f"argument {name} is nested too deeply or contains itself") from error


def _found(task: HipqTask, path: str) -> HipqTask:
    """Return the task that workers find at the path of a task; raise `InvalidTask`."""
    found = task_at(path)
    if found is not task:
        for name in OF_THE_CODE:
            if getattr(task, name) != getattr(found, name):
                raise InvalidTask(
                    f"{path}: {name}={getattr(task, name)!r} is given, but the task at this path, "
                    f"which workers use, has {name}={getattr(found, name)!r}; set it there."
                )
    return found


def _task_or_none(path: str) -> HipqTask | None:
    try:
        return task_at(path)
    except Exception:  # it is gone, or its module raises: the result can be read all the same
        return None


_ended = Signal()
"""A task has ended, and somebody is to be told."""

_ended.connect(tell_of_end)


PAGE_SIZE = 100
"""The ends of how many tasks are read at once: each may be large."""


def _tell(jobs: Sequence[Job], using: str) -> None:
    heard = [job for job in jobs if is_heard(job)]
    for start in range(0, len(heard), PAGE_SIZE):
        page = heard[start : start + PAGE_SIZE]
        ends = stored_ends(page, using)
        for job in page:
            send(_ended, job, ends=ends)


TASKS.jobs_finished = _tell
