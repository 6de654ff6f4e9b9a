"""Finds the status of an answer from the state of its job and the answers before it."""

from __future__ import annotations

from django.db.models import Q
from django.utils.translation import gettext as _

from hipq_django.answers import aggregation
from hipq_django.domain.drafts import IncomingAnswer, as_incoming
from hipq_django.domain.states import AnswerKind, AnswerStatus, State
from hipq_django.job_types.registry import names_of
from hipq_django.models import Answer, Job


def classify(message: IncomingAnswer, job: Job | None) -> AnswerStatus:
    """Return the status of a message; `job` is locked, or None if no job waits for it."""
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
    """Whether another answer was first; a response takes precedence over a pending error."""
    if not job.has_pending_answer or message.kind == AnswerKind.ERROR:
        return job.has_pending_answer
    kept = job.answers.using(job.using).filter(kind=AnswerKind.RESPONSE)
    return kept.filter(status__in=aggregation.KEPT).exists()


def _is_repeat(message: IncomingAnswer, job: Job) -> bool:
    """Whether the same answer came before, for this attempt if that matters."""
    this_attempt = Q(attempt=attempt_of(message, job))
    counts = Q(status__in=aggregation.SETTLED) & this_attempt | Q(status=AnswerStatus.EARLY)
    if message.kind == AnswerKind.RESPONSE and message.attempt is None:
        counts |= Q(status=AnswerStatus.ACCEPTED)
    before = job.answers.using(job.using).filter(counts, kind=message.kind)
    return aggregation.is_among(message, before)


def _is_spent(message: IncomingAnswer, job: Job) -> bool:
    """Whether that attempt was answered before, or the error is about an attempt that is over."""
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
    """Return the attempt that the message is for."""
    if message.attempt is not None:
        return message.attempt
    return job.attempt if job else 0


def refusal(answer: Answer, job: Job) -> str:
    """Return why this answer cannot be matched to this job by hand; '' if it can.

    In the active language.
    """
    if not answer.is_free:
        text = _(
            "the answer is %(status)s, its kind is %(kind)s; only early and unmatched answers "
            "without a job can be matched."
        )
        status = AnswerStatus(answer.status).word
        return text % {"status": status, "kind": answer.get_kind_display()}
    names = names_of(answer.instance, answer.job_type)
    if job.job_type.instance != answer.instance or job.job_type.name not in names:
        return _of_another_type(answer, job)
    if job.is_final:
        text = _(
            "the job is final (%(outcome)s) and never changes; requeue it and match the fresh job."
        )
        return text % {"outcome": job.get_outcome_display()}
    if classify(as_incoming(answer), job) not in (AnswerStatus.ACCEPTED, AnswerStatus.EARLY):
        text = _(
            "attempt %(attempt)s of the job was answered already, its error is known, or it does "
            "not wait for part '%(part)s'."
        )
        return text % {"attempt": job.attempt, "part": answer.part}
    return ""


def _of_another_type(answer: Answer, job: Job) -> str:
    text = _(
        "the answer is for job type '%(answer_type)s' of instance '%(answer_instance)s', the job "
        "is of type '%(job_type)s' of instance '%(job_instance)s'."
    )
    return text % {
        "answer_type": answer.job_type,
        "answer_instance": answer.instance,
        "job_type": job.job_type.name,
        "job_instance": job.job_type.instance,
    }
