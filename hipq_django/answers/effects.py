"""What an accepted answer does to its job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hipq_django import transitions
from hipq_django.answers import aggregation
from hipq_django.domain.states import AnswerKind, AnswerStatus, State
from hipq_django.engines import engine_for
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, Attempt, Job


def apply_by_status(answer: Answer, job: Job, now: datetime) -> None:
    """Let an answer act on its locked job, according to its status."""
    if answer.status == AnswerStatus.ACCEPTED:
        apply(answer, job, now)
    elif answer.status == AnswerStatus.EARLY and not aggregation.is_part(answer, job):
        _make_due(job, now)
    else:
        return
    engine_for(job.using).wake_workers(answer.instance, [job.queue_id])


def apply(answer: Answer, job: Job, now: datetime) -> None:
    """Let an accepted answer act on its locked job, which is running, in error or in retry.

    One of several answers does nothing until all have come.
    """
    if answer.kind == AnswerKind.ERROR:
        _fail(job, answer.payload, now)
    elif answer.part and not aggregation.is_complete(job):
        return
    elif not has_response_handler(job):
        transitions.succeed(job, aggregation.response_of(answer, job), now)
    elif job.state == State.RUNNING:
        transitions.mark_answered([job], now, job.using)
    else:
        _retry_with_response(job, now)


def has_response_handler(job: Job) -> bool:
    """Return whether a response handler gets the job's response; otherwise it is the result.

    That of the row or of this process's code: each may be ahead of the other while a new version is
    rolled out.
    """
    declared = get_declared(job.job_type.instance, job.job_type.name)
    return job.job_type.has_response_handler or bool(declared and declared.response_handler)


def _fail(job: Job, error: Any, now: datetime) -> None:
    if job.state in (State.ERROR, State.RETRY):
        # The other system's answer to this attempt replaces a guess such as a timeout. If a worker
        # is just deciding about the guess, its decision will be dropped.
        job.attempts.using(job.using).filter(attempt=job.attempt).delete()
        job.worker = None
    if job.state == State.RETRY:
        transitions.move(job, State.RUNNING, {}, now)
    if job.has_pending_answer:  # by this error, which is processed here
        transitions.clear_pending_answer(job)
    transitions.fail([job], Attempt.Kind.ANSWERED, {job.pk: error}, now, job.using)


def _retry_with_response(job: Job, now: datetime) -> None:
    if job.state == State.ERROR:
        transitions.move(job, State.RETRY, {"error": job.error}, now)
    _make_due(job, now)


def _make_due(job: Job, now: datetime) -> None:
    """Let a waiting job be claimed at once, because its answer has come.

    One that waits for others is claimed when they have ended, or it would overtake them.
    """
    transitions.mark_answered([job], now, job.using)
    if job.hold_time is None:
        transitions.reschedule({job: min(job.scheduled_run_time, now)}, now, job.using)
