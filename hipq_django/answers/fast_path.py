"""The fast path for the usual answer: a response to a job that waits for exactly this one.

The job has had no answer before. One statement stores the response and settles the job. Every other
message is left to `arrival`, which follows the rules of `classification`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from hipq_django import events
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.parts import UNNAMED
from hipq_django.domain.states import AnswerKind
from hipq_django.engines import engine_for
from hipq_django.engines.rows import read_answer
from hipq_django.engines.values import SettledJob
from hipq_django.extensions import hearers_of_ends, note_ended
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer
from hipq_django.signals import job_finished, send_after_commit
from hipq_django.transitions.updates import chunks


def settle(
    messages: Iterable[IncomingAnswer], now: datetime, using: str, *, job_id: int | None = None
) -> list[Answer]:
    """Settle the waiting jobs that wait for exactly one of the messages.

    The messages are of one instance and have different keys, or there is one, for the job with an
    id. Return the stored answers, in no order; all other messages are not stored. Raise
    `IntegrityError` if a message's id is known.
    """
    stored: list[Answer] = []
    for declared, responses in _by_type(messages):
        handled = declared.response_handler is not None
        settled = engine_for(using).settle(responses, now, handled=handled, job_id=job_id)
        if not settled:
            continue
        _announce(declared, settled, using)
        if job_id is not None:
            return [read_answer(responses[0], settled[0], now, using)]
        by_key = {message.job_key: message for message in responses}
        stored += [read_answer(by_key[done.job_key], done, now, using) for done in settled]
    return stored


def _by_type(
    messages: Iterable[IncomingAnswer],
) -> Iterator[tuple[Declaration, list[IncomingAnswer]]]:
    """Yield the whole responses to jobs whose type this process knows, and which expect one.

    By the names of the types: a type may have several, and each has keys of its own.
    """
    by_name: dict[str, list[IncomingAnswer]] = {}
    for message in messages:
        if message.kind == AnswerKind.RESPONSE and message.part == UNNAMED:
            by_name.setdefault(message.job_type, []).append(message)
    for name, responses in by_name.items():
        declared = get_declared(responses[0].instance, name)
        if declared is not None and not declared.counted_answers:
            yield declared, responses


def _announce(declared: Declaration, settled: Sequence[SettledJob], using: str) -> None:
    """Tell that jobs of a type are final, unless their responses have a handler."""
    if declared.response_handler is not None:
        return
    ids = [done.job_id for done in settled]
    note_ended(ids, using)
    if job_finished.receivers or declared.kind in hearers_of_ends():
        for jobs in chunks(using, ids):
            send_after_commit(job_finished, jobs.select_related("job_type"), using)


def log_received(answer: Answer, event: str = "answer_received") -> None:
    """Write what became of a message to the log, without its content."""
    if events.is_logged(logging.INFO):  # often nobody reads this level
        events.info(
            event,
            answer_id=answer.pk,
            job_id=answer.job_id,
            job_type=answer.job_type,
            job_key=answer.job_key,
            kind=answer.kind,
            status=answer.status,
        )
