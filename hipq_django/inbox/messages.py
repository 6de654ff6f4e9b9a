"""An answer before it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hipq_django.models import Answer
from hipq_django.parts import UNNAMED
from hipq_django.payloads import NONE

Status, Kind = Answer.Status, Answer.Kind


@dataclass(frozen=True, slots=True)
class Message:
    """An answer before it is stored, all of it checked.

    `attempt` is the attempt that a signed callback URL was made for, None where the answer is
    matched by its key. `problem` says why a malformed message is no answer, `part` which of several
    answers it is.
    """

    instance: str
    job_type: str
    job_key: str
    kind: str
    payload: Any = field(repr=False)
    message_id: str = NONE
    attempt: int | None = None
    problem: str = NONE
    part: str = UNNAMED


def message_of(answer: Answer) -> Message:
    """Return a stored answer as the message that it was."""
    return Message(
        answer.instance, answer.job_type, answer.job_key, answer.kind, answer.payload,
        answer.message_id, part=answer.part,
    )  # fmt: skip
