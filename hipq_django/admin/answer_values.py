"""How an answer's values are shown, wherever they are."""

from __future__ import annotations

from hipq_django.admin.display import badge
from hipq_django.models import Answer

TONES = {
    Answer.Status.ACCEPTED: "succeeded",
    Answer.Status.EARLY: "retry",
    Answer.Status.UNMATCHED: "error",
    Answer.Status.LATE: "timed_out",
}


def name_of(status: str) -> str:
    """Return a status in a word."""
    return Answer.Status(status).word


def meaning_of(answer: Answer) -> str:
    """Return what the status of an answer means, which its badge does not say."""
    return Answer.Status(answer.status).meaning


def status_badge(answer: Answer) -> str:
    """Return what became of an answer."""
    return badge(name_of(answer.status), TONES.get(answer.status, "cancelled"))  # type: ignore[call-overload]  # the keys are statuses
