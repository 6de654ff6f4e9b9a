"""What a project or an operator does to jobs that are there: cancel, run now, put off, prefer."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from hipq_django import transitions
from hipq_django.answers import early
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.notify import wake_workers
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.states import WAITING, Outcome, State
from hipq_django.domain.validation import aware_moment, checked_priority
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Job
from hipq_django.signals import job_finished, send_after_commit


def cancel(job: Job) -> Job:
    """Make a live job final with the outcome cancelled; bring `job` up to date and return it.

    A handler that is executing it is not stopped, but what it returns is dropped. Raise
    `InvalidJobError` for a final job.
    """
    with write_transaction(job.using):
        lock_live(job, "cancel")
        cancel_locked(job, "Cancelled")
    return job


def reschedule(job: Job, at: datetime) -> Job:
    """Give a waiting job another time, an aware datetime; bring `job` up to date and return it.

    It becomes the first one inside the job's time windows. Raise `InvalidJobError` unless the job
    is waiting.
    """
    return _edit(job, "reschedule", {"scheduled_run_time": aware_moment("reschedule", at)})


def reprioritize(job: Job, priority: int) -> Job:
    """Give a waiting job another priority, lower is sooner; bring `job` up to date and return it.

    Raise `InvalidJobError` unless the job is waiting.
    """
    return _edit(job, "reprioritize", {"priority": checked_priority(priority)})


def _edit(job: Job, verb: str, values: dict[str, Any]) -> Job:
    with write_transaction(job.using):
        _lock_waiting(job, verb)
        now = clock.now(job.using)
        transitions.edit(job, values, now)
        if job.scheduled_run_time <= now:
            wake_workers(job.queue.instance, [job.queue_id], job.using)
    return job


def _lock_waiting(job: Job, verb: str) -> None:
    lock_live(job, verb)
    if job.state not in WAITING:
        raise InvalidJobError(
            f"{verb}: {job} is {job.state}; this is for waiting jobs, in initial or retry."
        )


def run_now(job: Job) -> Job:
    """Let a waiting job run as soon as the limit, throttlers and pause of its queue allow.

    Its time windows are dropped. Raise `InvalidJobError` unless it is waiting.
    """
    with write_transaction(job.using):
        _lock_waiting(job, "run_now")
        now = clock.now(job.using)
        job.time_windows = []
        Job.objects.using(job.using).filter(pk=job.pk).update(time_windows=[])
        transitions.reschedule(job, now, now)
        wake_workers(job.queue.instance, [job.queue_id], job.using)
    return job


acancel = sync_to_async(cancel)
arun_now = sync_to_async(run_now)
areschedule = sync_to_async(reschedule)
areprioritize = sync_to_async(reprioritize)


def lock_live(job: Job, verb: str) -> None:
    """Lock the row of a live job and bring the given copy up to date."""
    read_row(job, locked(Job.objects.using(job.using)), verb)
    if job.is_final:
        raise InvalidJobError(
            f"{verb}: {job} is final ({job.outcome}); use requeue to run it once more."
        )


def read_row(job: Job, rows: QuerySet[Job], verb: str) -> None:
    if job.pk is None:
        raise InvalidJobError(f"{verb}: the job was never enqueued.")
    row = rows.filter(pk=job.pk).first()
    if row is None:
        raise InvalidJobError(f"{verb}: job {job.pk} does not exist any more; it was pruned.")
    for field in Job._meta.concrete_fields:
        setattr(job, field.attname, getattr(row, field.attname))


def cancel_locked(job: Job, reason: str) -> None:
    values = {"outcome": Outcome.CANCELLED, "error": reason, "has_pending_answer": False}
    transitions.move(job, State.FINAL, values, clock.now(job.using))
    early.mark_early_late(job)
    send_after_commit(job_finished, [job], job.using)
