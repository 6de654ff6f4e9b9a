"""The usual answer: a response to a job that waits for just this, and never got any answer.

It is stored and settles its job in one statement. Every other message is left to `inbox`, which
is the source of the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq_django import moves
from hipq_django.hotpath.rows import read_answer
from hipq_django.inbox import Kind, Message
from hipq_django.parts import UNNAMED
from hipq_django.registry import get_declared
from hipq_django.wakeup import wake_workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from hipq_django.models import Answer
    from hipq_django.registry import DeclaredType


def settle(
    messages: Iterable[Message], now: datetime, using: str, *, job_id: int | None = None
) -> list[Answer]:
    """Settle waiting jobs by those of the messages that are all they wait for.

    The messages are of one instance and differ in their keys, or it is one for the job with an
    id. Return the answers that were stored, in no order; of all other messages nothing was made.
    Raise `IntegrityError` where a message's id is known.
    """
    stored: list[Answer] = []
    for declared, responses in _by_type(messages).items():
        stored += _settle(declared, responses, now, using, job_id)
    return stored


def _by_type(messages: Iterable[Message]) -> dict[DeclaredType, list[Message]]:
    """Return the whole responses to jobs whose type this process knows, and which expect one."""
    groups: dict[DeclaredType, list[Message]] = {}
    for message in messages:
        declared = get_declared(message.instance, message.job_type)
        if declared is None or declared.counted_answers:
            continue
        if message.kind == Kind.RESPONSE and message.part == UNNAMED:
            groups.setdefault(declared, []).append(message)
    return groups


def _settle(
    declared: DeclaredType,
    responses: Sequence[Message],
    now: datetime,
    using: str,
    job_id: int | None,
) -> list[Answer]:
    handled = declared.response_handler is not None
    settled = moves.settle(responses, now, using, handled=handled, job_id=job_id)
    if not settled:
        return []
    wake_workers(declared.instance, {done.queue_id for done in settled}, using)
    if job_id is not None:
        return [read_answer(responses[0], settled[0], now, using)]
    by_key = {message.job_key: message for message in responses}
    return [read_answer(by_key[done.job_key], done, now, using) for done in settled]
