"""What an answer counts for, by what its job is and had before."""

from __future__ import annotations

from django.db.models import Q

from hipq_django.answers import aggregation
from hipq_django.domain.drafts import IncomingAnswer, as_incoming
from hipq_django.domain.states import AnswerKind, AnswerStatus, State
from hipq_django.models import Answer, Job


def classify(message: IncomingAnswer, job: Job | None) -> AnswerStatus:
    """Return what the message counts for; `job` is locked, None where nobody waits for it."""
    if message.kind == AnswerKind.MALFORMED:
        return AnswerStatus.UNMATCHED
    if job is None:
        return AnswerStatus.EARLY
    if aggregation.is_part(message, job):
        return aggregation.classify_part(message, job)
    return _status_alone(message, job)


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
    return kept.filter(status__in=aggregation.KEPT).exists()


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


def refusal(answer: Answer, job: Job) -> str:
    """Return why this job cannot take this answer by hand, '' where it can."""
    if not answer.is_free:
        return (
            f"it is {answer.status}, its kind is {answer.kind}; only early and unmatched answers "
            "without a job can be."
        )
    if (job.job_type.instance, job.job_type.name) != (answer.instance, answer.job_type):
        return (
            f"it is for job type {answer.job_type!r} of instance {answer.instance!r}, and {job} "
            f"is of type {job.job_type.name!r} of instance {job.job_type.instance!r}."
        )
    if job.is_final:
        return (
            f"{job} is final ({job.outcome}) and never changes; requeue it and match the fresh job."
        )
    if classify(as_incoming(answer), job) not in (AnswerStatus.ACCEPTED, AnswerStatus.EARLY):
        return (
            f"attempt {job.attempt} of {job} was answered already, its error is known, or it does "
            f"not wait for part {answer.part!r}."
        )
    return ""
