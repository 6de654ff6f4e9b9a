"""What an answer counts for, by what its job is and had before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Q

from hipq_django import gathering
from hipq_django.inbox.messages import Kind, Status
from hipq_django.states import State

if TYPE_CHECKING:
    from hipq_django.inbox.messages import Message
    from hipq_django.models import Answer, Job

SETTLING = (Status.ACCEPTED, Status.DISCARDED)


def status_of(message: Message, job: Job | None) -> Answer.Status:
    """Return what the message counts for; `job` is locked, None where nobody waits for it."""
    if message.kind == Kind.MALFORMED:
        return Status.UNMATCHED
    if job is None:
        return Status.EARLY
    is_part = gathering.is_part(message.kind, message.part, job)
    return gathering.status(message, job) if is_part else _status_alone(message, job)


def _status_alone(message: Message, job: Job) -> Answer.Status:
    if _is_repeat(message, job):
        return Status.DUPLICATE
    if job.is_final or _is_answered(message, job) or _is_spent(message, job):
        return Status.LATE
    return Status.EARLY if job.state == State.INITIAL else Status.ACCEPTED


def _is_answered(message: Message, job: Job) -> bool:
    """Whether another answer was first; a response goes before an error that waits."""
    if not job.answered or message.kind == Kind.ERROR:
        return job.answered
    kept = job.answers.using(job.using).filter(kind=Kind.RESPONSE)
    return kept.filter(status__in=(Status.EARLY, Status.ACCEPTED)).exists()


def _is_repeat(message: Message, job: Job) -> bool:
    """Whether the same was answered before, for this attempt where it matters."""
    this_attempt = Q(attempt=attempt_of(message, job))
    counts = Q(status__in=SETTLING) & this_attempt | Q(status=Status.EARLY)
    if message.kind == Kind.RESPONSE and message.attempt is None:
        counts |= Q(status=Status.ACCEPTED)
    before = job.answers.using(job.using).filter(counts, kind=message.kind)
    return any(answer.payload == message.payload for answer in before)


def _is_spent(message: Message, job: Job) -> bool:
    """Whether the attempt that is answered was answered before, or its error is old news."""
    attempt = attempt_of(message, job)
    if message.kind == Kind.ERROR and attempt < job.attempt:
        return True
    by_url = message.attempt is not None
    if not by_url and message.kind == Kind.RESPONSE:
        return False  # a response by key is worth more than an earlier error
    answers = job.answers.using(job.using).filter(attempt=attempt, status__in=SETTLING)
    other_parts = Q(kind=Kind.RESPONSE, status=Status.ACCEPTED) & ~Q(part=message.part)
    return answers.exclude(other_parts).exists()


def attempt_of(message: Message, job: Job | None) -> int:
    """Return the attempt that the message answers."""
    if message.attempt is not None:
        return message.attempt
    return job.attempt if job else 0


def is_part_of(answer: Answer, job: Job) -> bool:
    """Whether the answer is one of several that the job waits for."""
    return gathering.is_part(answer.kind, answer.part, job)
