"""What an answer counts for, by what its job is and had before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Q

from hipq_django.answers import aggregation
from hipq_django.domain.states import AnswerKind, AnswerStatus, State

if TYPE_CHECKING:
    from hipq_django.domain.drafts import IncomingAnswer
    from hipq_django.models import Answer, Job


def classify(message: IncomingAnswer, job: Job | None) -> AnswerStatus:
    """Return what the message counts for; `job` is locked, None where nobody waits for it."""
    if message.kind == AnswerKind.MALFORMED:
        return AnswerStatus.UNMATCHED
    if job is None:
        return AnswerStatus.EARLY
    is_part = aggregation.is_part(message.kind, message.part, job)
    return aggregation.classify_part(message, job) if is_part else _status_alone(message, job)


def _status_alone(message: IncomingAnswer, job: Job) -> AnswerStatus:
    if _is_repeat(message, job):
        return AnswerStatus.DUPLICATE
    if job.is_final or _is_answered(message, job) or _is_spent(message, job):
        return AnswerStatus.LATE
    return AnswerStatus.EARLY if job.state == State.INITIAL else AnswerStatus.ACCEPTED


def _is_answered(message: IncomingAnswer, job: Job) -> bool:
    """Whether another answer was first; a response goes before an error that waits."""
    if not job.has_pending_answer or message.kind == AnswerKind.ERROR:
        return job.has_pending_answer
    kept = job.answers.using(job.using).filter(kind=AnswerKind.RESPONSE)
    return kept.filter(status__in=(AnswerStatus.EARLY, AnswerStatus.ACCEPTED)).exists()


def _is_repeat(message: IncomingAnswer, job: Job) -> bool:
    """Whether the same was answered before, for this attempt where it matters."""
    this_attempt = Q(attempt=attempt_of(message, job))
    counts = Q(status__in=aggregation.SETTLED) & this_attempt | Q(status=AnswerStatus.EARLY)
    if message.kind == AnswerKind.RESPONSE and message.attempt is None:
        counts |= Q(status=AnswerStatus.ACCEPTED)
    before = job.answers.using(job.using).filter(counts, kind=message.kind)
    return any(answer.payload == message.payload for answer in before)


def _is_spent(message: IncomingAnswer, job: Job) -> bool:
    """Whether the attempt that is answered was answered before, or its error is old news."""
    attempt = attempt_of(message, job)
    if message.kind == AnswerKind.ERROR and attempt < job.attempt:
        return True
    by_url = message.attempt is not None
    if not by_url and message.kind == AnswerKind.RESPONSE:
        return False  # a response by key is worth more than an earlier error
    answers = job.answers.using(job.using).filter(attempt=attempt, status__in=aggregation.SETTLED)
    other_parts = Q(kind=AnswerKind.RESPONSE, status=AnswerStatus.ACCEPTED) & ~Q(part=message.part)
    return answers.exclude(other_parts).exists()


def attempt_of(message: IncomingAnswer, job: Job | None) -> int:
    """Return the attempt that the message answers."""
    if message.attempt is not None:
        return message.attempt
    return job.attempt if job else 0


def is_part_of(answer: Answer, job: Job) -> bool:
    """Whether the answer is one of several that the job waits for."""
    return aggregation.is_part(answer.kind, answer.part, job)
