"""What `django.tasks` says of a job: its task, status, times, errors and workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from hipq_django.domain.states import NONE, WAITING, Outcome, State
from hipq_django.exceptions import JobCancelled
from hipq_django.models import Attempt, Job, Worker
from hipq_django.models.masking import shown
from hipq_django.tasks_backend.hipq_task import HipqTask
from hipq_django.tasks_backend.names import (
    InvalidTask,
    TaskError,
    TaskResult,
    TaskResultStatus,
    path_of,
)

FIRST_PRIORITY = 100
"""Django's priority 0 as a job's; a higher one of Django's is a lower one here."""

MOST = 100
"""The highest of Django's priorities."""


def find_job(pk: int, instance: str, kind: str, using: str) -> Job | None:
    """Return a job of the backend, with the name of the worker that claimed it last."""
    return _jobs(using).filter(pk=pk, queue__instance=instance, job_type__kind=kind).first()


def _jobs(using: str) -> QuerySet[Job]:
    names = Worker.objects.using(using).filter(pk=OuterRef("last_worker_id")).values("name")
    last_worker = Coalesce(Subquery(names[:1]), F("worker__name"))
    jobs = Job.objects.using(using).annotate(last_worker=last_worker)
    return jobs.select_related("queue", "job_type")


def stored_ends(jobs: Sequence[Job], using: str) -> Callable[[], Mapping[int, Job]]:
    """Return a function that reads, once, all that the results of ended jobs tell, by their ids."""
    ids = [job.pk for job in jobs]
    return cache(lambda: _jobs(using).prefetch_related("attempts").in_bulk(ids))


def result_of(
    job: Job, task: HipqTask | None, alias: str, kind: type[HipqTask]
) -> TaskResult[Any, Any]:
    """Return the result of a job as it is now; `task` is the one at its path, or None."""
    attempts = _attempts_of(job)
    result: TaskResult[Any, Any] = TaskResult(
        task=_task_of(job, task, alias, kind),
        id=str(job.id),
        enqueued_at=job.create_time,
        args=job.job_data["args"],
        kwargs=job.job_data["kwargs"],
        backend=alias,
        status=status_of(job),
        started_at=attempts[0].start_time if attempts else _began(job),
        last_attempted_at=_began(job) or (attempts[-1].start_time if attempts else None),
        finished_at=job.update_time if job.is_final else None,
        errors=_errors(job, attempts),
        worker_ids=_worker_ids(job, attempts),
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", job.result)
    return result


def status_of(job: Job) -> TaskResultStatus:
    """Return the status of a job in Django's words."""
    if job.state in WAITING:
        return TaskResultStatus.READY
    if not job.is_final:
        return TaskResultStatus.RUNNING
    succeeded = job.outcome == Outcome.SUCCEEDED
    return TaskResultStatus.SUCCESSFUL if succeeded else TaskResultStatus.FAILED


def _attempts_of(job: Job) -> Sequence[Attempt]:
    """Return the failed attempts; there is none while the first one runs, or if it succeeded."""
    has_not_failed = job.state == State.RUNNING or job.outcome == Outcome.SUCCEEDED
    none = job.attempt == 0 or (job.attempt == 1 and has_not_failed)
    return [] if none else sorted(job.attempts.all(), key=lambda attempt: attempt.attempt)


def _began(job: Job) -> datetime | None:
    """Return when the newest attempt began that has not failed."""
    if job.attempt == 0 or job.state in WAITING or job.state == State.ERROR:
        return None
    return job.start_time


def _errors(job: Job, attempts: Sequence[Attempt]) -> list[TaskError]:
    errors = [
        TaskError(
            exception_class_path=(attempt.exception_classes or [path_of(RuntimeError)])[0],
            traceback=str(shown(job, _said(attempt))),
        )
        for attempt in attempts
    ]
    if job.outcome == Outcome.CANCELLED:
        reason = "" if job.error == NONE else str(shown(job, job.error))
        errors.append(TaskError(exception_class_path=path_of(JobCancelled), traceback=reason))
    return errors


def _said(attempt: Attempt) -> Any:
    return attempt.error if attempt.traceback == NONE else attempt.traceback


def _worker_ids(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """Return who claimed the job, for each attempt; for a snoozed one, who did so last."""
    if job.attempt == 0:
        return []
    names: Mapping[int, str] = {attempt.attempt: attempt.worker for attempt in attempts}
    last = getattr(job, "last_worker", None)
    if last is None:
        last = job.worker.name if job.worker_id and job.worker else f"worker {job.last_worker_id}"
    return [names.get(number, last) for number in range(1, job.attempt + 1)]


# The task


_OF_ONE_JOB = ("priority", "queue_name", "run_after", "backend")
_enqueued_as = attrgetter(*_OF_ONE_JOB)


def _task_of(job: Job, task: HipqTask | None, alias: str, kind: type[HipqTask]) -> HipqTask:
    """Return the task as it was enqueued; nothing is checked, because it was."""
    after = job.job_data.get("run_after")
    moment = datetime.fromisoformat(after) if after else None
    priority = max(-MOST, min(FIRST_PRIORITY - job.priority, MOST))
    own = priority, job.queue.name, moment, alias
    if task is not None and _enqueued_as(task) == own:
        return task
    values = {
        field.name: getattr(task, field.name) if task else field.default for field in fields(kind)
    }
    if task is None:
        values["func"] = _gone(job.job_type.name)
    values |= zip(_OF_ONE_JOB, own, strict=True)
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _gone(path: str) -> Any:
    """Return a function in the place of one that is not there any more."""

    def gone(*_: Any, **__: Any) -> None:
        raise InvalidTask(f"There is no task at {path!r} any more.")

    gone.__module__, _, gone.__qualname__ = path.rpartition(".")
    gone.__name__ = gone.__qualname__
    return gone
