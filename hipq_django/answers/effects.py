"""What an answer that counts does to its job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hipq_django import transitions
from hipq_django.answers import aggregation
from hipq_django.database.notify import wake_workers
from hipq_django.domain.states import NONE, AnswerKind, AnswerStatus, Outcome, State
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, Attempt, Job
from hipq_django.signals import job_finished, send_after_commit


def apply_by_status(answer: Answer, job: Job, now: datetime) -> None:
    """Let an answer that its locked job has got now act on it, by its status."""
    if answer.status == AnswerStatus.ACCEPTED:
        apply(answer, job, now)
    elif answer.status == AnswerStatus.EARLY and not aggregation.is_part(answer, job):
        _make_due(job, now)
    else:
        return
    wake_workers(answer.instance, [job.queue_id], job.using)


def apply(answer: Answer, job: Job, now: datetime) -> None:
    """Let an accepted answer act on its locked job, which is running, in error or in retry.

    One of several does nothing until all are in.
    """
    if answer.kind == AnswerKind.ERROR:
        _fail(job, answer.payload, now)
    elif answer.part and not aggregation.is_complete(job):
        return
    elif not has_response_handler(job):
        _finish(job, aggregation.response_of(answer, job), now)
    elif job.state == State.RUNNING:
        transitions.mark_answered([job], now, job.using)
    else:
        _retry_with_response(job, now)


def has_response_handler(job: Job) -> bool:
    """Return whether the response of a job is for a handler, or is its result as it is."""
    declared = get_declared(job.job_type.instance, job.job_type.name)
    return bool(declared.response_handler if declared else job.job_type.has_response_handler)


def _fail(job: Job, error: Any, now: datetime) -> None:
    if job.state in (State.ERROR, State.RETRY):
        # What the other system says of this attempt replaces what was guessed, a timeout say. A
        # decision about that, which some worker is making just now, is dropped by it.
        job.attempts.using(job.using).filter(attempt=job.attempt).delete()
        job.worker = None
    if job.state == State.RETRY:
        transitions.move(job, State.RUNNING, {}, now)
    if job.has_pending_answer:  # by this error, which is worked off here
        job.has_pending_answer = False
        Job.objects.using(job.using).filter(pk=job.pk).update(has_pending_answer=False)
    transitions.fail([job], Attempt.Kind.ANSWERED, {job.pk: error}, now, job.using)


def _finish(job: Job, response: Any, now: datetime) -> None:
    values = {"outcome": Outcome.SUCCEEDED, "error": NONE, "result": response}
    transitions.move(job, State.FINAL, {**values, "has_pending_answer": False}, now)
    send_after_commit(job_finished, [job], job.using)


def _retry_with_response(job: Job, now: datetime) -> None:
    if job.state == State.ERROR:
        transitions.move(job, State.RETRY, {"error": job.error}, now)
    _make_due(job, now)


def _make_due(job: Job, now: datetime) -> None:
    """Let a waiting job be claimed at once: what it would ask for is there."""
    job.has_pending_answer = True
    Job.objects.using(job.using).filter(pk=job.pk).update(has_pending_answer=True, update_time=now)
    transitions.reschedule(job, min(job.scheduled_run_time, now), now)
