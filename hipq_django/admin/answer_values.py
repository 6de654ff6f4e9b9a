"""How an answer's values are shown, wherever they are."""

from __future__ import annotations

from typing import Any

from hipq_django.admin.display import badge
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.states import STATUS_MEANINGS, STATUS_WORDS
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, JobType
from hipq_django.models.job_type import redactor_of_all

TONES = {
    Answer.Status.ACCEPTED: "succeeded",
    Answer.Status.EARLY: "retry",
    Answer.Status.UNMATCHED: "error",
    Answer.Status.LATE: "timed_out",
}


def name_of(status: str) -> str:
    """Return a status in a word."""
    return str(STATUS_WORDS[Answer.Status(status)])


def meaning_of(answer: Answer) -> str:
    """Return what the status of an answer means, which its badge does not say."""
    return str(STATUS_MEANINGS[Answer.Status(answer.status)])


def status_badge(answer: Answer) -> str:
    """Return what became of an answer."""
    return badge(name_of(answer.status), TONES.get(answer.status, "cancelled"))  # type: ignore[call-overload]  # the keys are statuses


def shown_payload(answer: Answer) -> Any:
    """Return what the other system sent, without the values of sensitive fields."""
    return masked(answer, answer.payload)


def masked(answer: Answer, value: Any) -> Any:
    """Return JSON or text about an answer without the values of its sensitive fields."""
    if answer.job is not None:
        return answer.job.job_type.redactor.knowing(answer.job.job_data, answer.payload).mask(value)
    return _redactor_of(answer).knowing(answer.payload).mask(value)


def _redactor_of(answer: Answer) -> Redactor:
    """Return what masks an answer without a job.

    Of a type that nobody knows, as if its job was pruned, it may have the fields of any.
    """
    types = JobType.objects.using(answer.using).filter(instance=answer.instance)
    row = types.filter(name=answer.job_type).first()
    is_known = row is not None or get_declared(answer.instance, answer.job_type) is not None
    if is_known or answer.kind == Answer.Kind.MALFORMED:
        return (row or JobType(instance=answer.instance, name=answer.job_type)).redactor
    return redactor_of_all(answer.instance, answer.using)
