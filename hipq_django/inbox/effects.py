"""What an answer that counts does to its job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django import gathering, moves
from hipq_django.inbox.messages import Kind, Status
from hipq_django.inbox.statuses import is_part_of
from hipq_django.models import Attempt, Job
from hipq_django.payloads import NONE
from hipq_django.registry import get_declared
from hipq_django.signals import job_finished, send_after_commit
from hipq_django.states import Outcome, State
from hipq_django.wakeup import wake_workers

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.models import Answer


def work_off(answer: Answer, job: Job, now: datetime) -> None:
    """Let an answer that its locked job has got now act on it, by its status."""
    if answer.status == Status.ACCEPTED:
        act(answer, job, now)
    elif answer.status == Status.EARLY and not is_part_of(answer, job):
        _hasten(job, now)
    else:
        return
    wake_workers(answer.instance, [job.queue_id], job.using)


def act(answer: Answer, job: Job, now: datetime) -> None:
    """Let an accepted answer act on its locked job, which is running, in error or in retry.

    One of several does nothing until all are in.
    """
    if answer.kind == Kind.ERROR:
        _fail(job, answer.payload, now)
    elif answer.part and not gathering.is_complete(job):
        return
    elif not has_response_handler(job):
        _finish(job, gathering.response_of(answer, job), now)
    elif job.state == State.RUNNING:
        moves.mark_answered([job], now, job.using)
    else:
        _retry_with_response(job, now)


def has_response_handler(job: Job) -> bool:
    """Return whether the response of a job is for a handler, or is its result as it is."""
    declared = get_declared(job.job_type.instance, job.job_type.name)
    if declared is None:
        return job.job_type.has_response_handler
    return declared.response_handler is not None


def _fail(job: Job, error: Any, now: datetime) -> None:
    if job.state in (State.ERROR, State.RETRY):
        # What the other system says of this attempt replaces what was guessed, a timeout say. A
        # decision about that, in some worker's hands just now, is dropped by the worker.
        job.attempts.using(job.using).filter(attempt=job.attempt).delete()
        job.worker = None
    if job.state == State.RETRY:
        moves.walk(job, State.RUNNING, {}, now)
    if job.answered:  # by this error, which is worked off here
        job.answered = False
        Job.objects.using(job.using).filter(pk=job.pk).update(answered=False)
    moves.fail([job], Attempt.Kind.ANSWERED, {job.pk: error}, now, job.using)


def _finish(job: Job, response: Any, now: datetime) -> None:
    values = {
        "outcome": Outcome.SUCCEEDED,
        "error": NONE,
        "result": response,
        "answered": False,
    }
    moves.walk(job, State.FINAL, values, now)
    send_after_commit(job_finished, [job], job.using)


def _retry_with_response(job: Job, now: datetime) -> None:
    if job.state == State.ERROR:
        moves.walk(job, State.RETRY, {"error": job.error}, now)
    _hasten(job, now)


def _hasten(job: Job, now: datetime) -> None:
    """Let a waiting job be claimed at once: what it would ask for is there."""
    job.answered = True
    Job.objects.using(job.using).filter(pk=job.pk).update(answered=True, update_time=now)
    moves.reschedule(job, min(job.scheduled_run_time, now), now)
