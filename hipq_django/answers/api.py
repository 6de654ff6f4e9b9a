"""`complete`, `fail` and `receive_many`: answers of another system arrive.

Late, early, repeated and unknown answers are stored and are no error for the sender; only values
that cannot be stored are refused, with nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError

from hipq_django.answers import arrival, bulk, early, fast_path
from hipq_django.answers.callback_urls import Token
from hipq_django.answers.classification import classify, refusal
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import statement_transaction, write_transaction
from hipq_django.domain.drafts import IncomingAnswer, NewAnswer, as_incoming
from hipq_django.domain.parts import UNNAMED, checked_part
from hipq_django.domain.serialization import to_json
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import checked_key, checked_type_name
from hipq_django.engines import engine_for
from hipq_django.exceptions import InvalidAnswerError, InvalidJobError
from hipq_django.models import Answer

MAX_MESSAGE_ID_CHARS = 255


def complete(
    job_type: str,
    job_key: str,
    response: Any = None,
    *,
    message_id: str | None = None,
    part: str | None = None,
    instance: str = DEFAULT,
) -> Answer:
    """Store the response to the job with this key and settle the job by it.

    Without a response handler the job is final at once, inside the caller's transaction; with one
    a worker runs it. `message_id` is the sender's own id of the message: a second message with
    the same id changes nothing. `part` names the part that is answered, where the job waits for
    several: it is settled once all are in. Return the stored answer; its `status` says what became
    of it.
    """
    answer = NewAnswer(job_type, job_key, message_id=message_id, part=part)
    return _receive_by_key(_message(instance, answer, Answer.Kind.RESPONSE, response))


def fail(
    job_type: str,
    job_key: str,
    error: Any,
    *,
    message_id: str | None = None,
    part: str | None = None,
    instance: str = DEFAULT,
) -> Answer:
    """Store the error that the job with this key was answered with; its retry handler decides.

    `error` is text or JSON. Otherwise as `complete`.
    """
    answer = NewAnswer(job_type, job_key, message_id=message_id, part=part)
    return _receive_by_key(_message(instance, answer, Answer.Kind.ERROR, error))


acomplete = sync_to_async(complete)
afail = sync_to_async(fail)


def receive_many(answers: Iterable[NewAnswer], *, instance: str = DEFAULT) -> list[Answer]:
    """Store many answers in one transaction, all or none, and settle their jobs by them.

    Each does what `complete` or `fail` would do. Return the stored answers in their order. Raise
    `InvalidAnswerError`, with nothing changed, if one of them cannot be stored.
    """
    return receive_messages([incoming_from(answer, instance) for answer in answers], instance)


areceive_many = sync_to_async(receive_many)


def incoming_from(
    answer: NewAnswer, instance: str, message_id: str | None = None
) -> IncomingAnswer:
    """Return the checked message of an answer; `message_id` is taken where it has none of its own.

    Raise `InvalidAnswerError` where it cannot be stored.
    """
    kind, payload = Answer.Kind.RESPONSE, answer.response
    if answer.error is not None:
        kind, payload = Answer.Kind.ERROR, answer.error
        if answer.response is not None:
            raise InvalidAnswerError(
                f"answer for {answer.job_type!r:.200}: it has a response and an error; give one."
            )
    if answer.message_id is None:
        answer = replace(answer, message_id=message_id)
    return _message(instance, answer, kind, payload)


def malformed_message(instance: str, raw: Any, problem: str, message_id: object) -> IncomingAnswer:
    """Return a message that is no answer, to be kept: `raw` is what came, `problem` why it is none.

    A message id that cannot be stored is dropped.
    """
    try:
        known_id = _checked_message_id(message_id)
    except InvalidAnswerError:
        known_id = NONE
    kind = Answer.Kind.MALFORMED
    return IncomingAnswer(instance, NONE, NONE, kind, to_json(raw), known_id, problem=problem)


def receive_messages(messages: Sequence[IncomingAnswer], instance: str) -> list[Answer]:
    """Store checked messages in one transaction, all or none; return their answers in order."""
    using = get_instance(instance).database
    if not messages:
        return []
    try:
        with write_transaction(using):
            return bulk.receive(messages, clock.now(using), using)
    except IntegrityError:
        # Another one stored a message with one of the ids at the same moment.
        with write_transaction(using):
            return [_receive_by_key(message) for message in messages]


def answer_callback(token: Token, kind: str, payload: Any) -> Answer:
    """Take an answer that came by a signed callback URL; return it as stored.

    The URL is good as long as the job lives: an attempt that was never answered may still settle
    the job after its timeout.
    """
    using = get_instance(token.instance).database
    payload = _checked_payload(kind, payload)
    found = engine_for(using).type_and_key_of(token.job_id)
    if found is not None:
        settled = _settled(_message_to(token, found, kind, payload), using, token.job_id)
        if settled is not None:
            return settled
    with write_transaction(using):
        job = arrival.lock_job_by_id(token.job_id, using)
        # By now it may have been pruned, or have another key.
        found = (job.job_type.name, job.job_key) if job else ("pruned job", str(token.job_id))
        message = _message_to(token, found, kind, payload)
        return arrival.receive(message, job, clock.now(using), using)


def _message_to(token: Token, found: tuple[str, str], kind: str, payload: Any) -> IncomingAnswer:
    """Return the message for a job, of which type and key were found."""
    return IncomingAnswer(
        token.instance, *found, kind, payload, attempt=token.attempt, part=token.part
    )


def assign(answer: Answer, job_id: int) -> Answer:
    """Match an answer that no job has to a job by hand; return it as it is stored then.

    The job takes it as if it came for it now. Raise `InvalidAnswerError`, with nothing changed,
    where it cannot, or where one of the two is gone.
    """
    using = answer.using
    with write_transaction(using):
        job = arrival.lock_job_by_id(job_id, using)
        fresh: Answer | None = locked(Answer.objects.using(using).filter(pk=answer.pk)).first()
        if fresh is None:
            raise InvalidAnswerError(f"answer {answer.pk} does not exist any more; it was pruned.")
        if job is None:
            raise InvalidAnswerError(f"there is no job {job_id}; it was pruned, or never was.")
        reason = refusal(fresh, job)
        if reason:
            raise InvalidAnswerError(f"answer {fresh.pk} was not matched: {reason}")
        early.assign(fresh, job, classify(as_incoming(fresh), job), clock.now(using))
        fast_path.log_received(fresh, "answer_matched")
    return fresh


def _message(instance: str, answer: NewAnswer, kind: str, payload: Any) -> IncomingAnswer:
    """Return the checked message; of `answer` its payload does not count."""
    job_type, job_key = answer.job_type, answer.job_key
    if job_key is None or job_key == NONE:
        raise InvalidAnswerError(
            f"answer for {job_type!r:.200}: job_key {job_key!r} names no job; give the key of the "
            "job."
        )
    try:
        name, key = checked_type_name(job_type), checked_key(job_key)
        part = UNNAMED if answer.part is None else checked_part(answer.part)
    except InvalidJobError as error:
        raise InvalidAnswerError(f"answer: {error}") from error
    payload = _checked_payload(kind, payload)
    message_id = _checked_message_id(answer.message_id)
    return IncomingAnswer(instance, name, key, kind, payload, message_id, part=part)


def _checked_payload(kind: str, payload: Any) -> Any:
    try:
        stored = to_json(payload)
    except ValueError as error:
        raise InvalidAnswerError(f"the {kind} is not JSON: {error}.") from error
    if kind == Answer.Kind.ERROR and stored in (None, "", NONE):
        raise InvalidAnswerError(
            f"error {payload!r} would mean that there is none; say what went wrong, or complete "
            "the job."
        )
    return stored


def _checked_message_id(message_id: object) -> str:
    if message_id is None:
        return NONE
    usable = isinstance(message_id, str) and 0 < len(message_id) <= MAX_MESSAGE_ID_CHARS
    if usable and message_id.isprintable():  # type: ignore[attr-defined]  # it is text
        return str(message_id)
    raise InvalidAnswerError(
        f"message_id {message_id!r:.200}: give text of 1 to {MAX_MESSAGE_ID_CHARS} printable "
        "characters, or leave it out."
    )


def _receive_by_key(message: IncomingAnswer) -> Answer:
    using = get_instance(message.instance).database
    try:
        settled = _settled(message, using)
        if settled is not None:
            return settled
        with write_transaction(using):
            return arrival.receive_by_key(message, clock.now(using), using)
    except IntegrityError:
        # Another message with its id was first, maybe at the same moment.
        known = arrival.find_by_message_id(message, using)
        if known is None:
            raise
        return known


def _settled(message: IncomingAnswer, using: str, job_id: int | None = None) -> Answer | None:
    """Settle a job that waits for just this message; return the answer, None where none does."""
    with statement_transaction(using):
        answers = fast_path.settle([message], clock.now(using), using, job_id=job_id)
    for answer in answers:
        fast_path.log_received(answer)
        return answer
    return None
