"""`complete`, `fail` and `receive_many`: receive the answers of another system.

Late, early, repeated and unknown answers are stored, and are no error for the sender. Only values
that cannot be stored are refused, with nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from hashlib import sha256
from typing import Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError
from django.utils import translation

from hipq_django.answers import arrival, early, fast_path
from hipq_django.answers.callback_urls import Token
from hipq_django.answers.classification import classify, refusal
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import statement_transaction, write_transaction
from hipq_django.domain.drafts import IncomingAnswer, NewAnswer, as_incoming
from hipq_django.domain.parts import UNNAMED, checked_part
from hipq_django.domain.serialization import sized_json, to_json
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import MAX_RESULT_BYTES, checked_key, checked_type_name
from hipq_django.engines import engine_for
from hipq_django.engines.rows import collector_paused
from hipq_django.exceptions import InvalidAnswerError, InvalidJobError
from hipq_django.job_types.registry import names_of
from hipq_django.models import Answer, Job
from hipq_django.models.answer import MAX_MESSAGE_ID_CHARS
from hipq_django.models.naming import Keyed, pruned, twin, verb
from hipq_django.models.undeclared_names import check_declared
from hipq_django.sharding import routing

ANSWER_FOR = "answer for"
"""What an error calls an answer by which no verb was called."""

Opened = Callable[[str], AbstractContextManager[None]]
"""Opens a transaction in a database, as `write_transaction` does."""


@verb
def complete(
    job: Job | Keyed,
    response: Any = None,
    *,
    message_id: str | None = None,
    part: str | None = None,
    instance: str = DEFAULT,
    shard_key: str | None = None,
) -> Answer:
    """Store the response to a job and settle the job by it.

    Without a response handler the job is final at once, inside the caller's transaction; with one a
    worker runs the handler. `message_id` is the sender's own id of the message: a second message
    with the same id changes nothing. If the job waits for several answers, `part` names the one
    that is given; the job is settled once all have come. Return the stored answer; its `status`
    says what became of it.
    """
    return _receive(job, Answer.Kind.RESPONSE, response, message_id, part, instance)


@verb
def fail(
    job: Job | Keyed,
    error: Any,
    *,
    message_id: str | None = None,
    part: str | None = None,
    instance: str = DEFAULT,
    shard_key: str | None = None,
) -> Answer:
    """Store an error as the answer to a job; its retry handler or policy decides what follows.

    `error` is text or JSON. The rest is as for `complete`.
    """
    return _receive(job, Answer.Kind.ERROR, error, message_id, part, instance)


acomplete = twin(complete)
afail = twin(fail)


def _receive(
    job: Job | Keyed,
    kind: str,
    payload: Any,
    message_id: str | None,
    part: str | None,
    instance: str,
) -> Answer:
    if isinstance(job, Job):
        return _receive_for(job, kind, payload, message_id, part)
    check_declared(instance, job.job_type, job.verb)
    named = {"message_id": message_id, "part": part, "shard_key": job.shard_key}
    answer = NewAnswer(job.job_type, job.job_key, **named)
    return receive_one(answer, kind, payload, instance, job.verb)


def receive_one(
    answer: NewAnswer, kind: str, payload: Any, instance: str, verb: str = ANSWER_FOR
) -> Answer:
    """Store the answer of another system; of `answer` its payload does not count.

    Job types that this process does not declare are taken too: the sender is not to blame.
    """
    message = _message(get_instance(instance), answer, kind, payload, verb)
    return _receive_by_key(message, arrival.database_of(message))


def receive_many(answers: Iterable[NewAnswer], *, instance: str = DEFAULT) -> list[Answer]:
    """Store many answers in one transaction, all or none, and settle their jobs by them.

    Each does what `complete` or `fail` would do. In a sharded instance there is a transaction for
    each shard. Return the stored answers in the same order. Raise `InvalidAnswerError`, with
    nothing changed, if one of them cannot be stored.
    """
    with collector_paused():
        config = get_instance(instance)
        messages = [incoming_from(answer, config) for answer in answers]
    for name in {message.job_type for message in messages}:
        check_declared(instance, name, "receive_many")
    return receive_messages(messages)


areceive_many = sync_to_async(receive_many)


def incoming_from(
    answer: NewAnswer, config: InstanceSettings, source: str = NONE, broker_id: str | None = None
) -> IncomingAnswer:
    """Return the checked message of an answer; without an id of its own it gets the broker's.

    Raise `InvalidAnswerError` if it cannot be stored.
    """
    kind, payload = Answer.Kind.RESPONSE, answer.response
    if answer.error is not None:
        kind, payload = Answer.Kind.ERROR, answer.error
        if answer.response is not None:
            raise InvalidAnswerError(
                f"answer for {answer.job_type!r:.200}: it has a response and an error; give one."
            )
    if answer.message_id is None:
        answer = replace(answer, message_id=_id_within(source, broker_id))
    return _message(config, answer, kind, payload, ANSWER_FOR)


def malformed_message(
    instance: str, source: str, raw: Any, problem: str, broker_id: object
) -> IncomingAnswer:
    """Return a malformed message, to be kept: `raw` is its content, `problem` says what is wrong.

    An id that cannot be stored is dropped. It is kept in the first shard.
    """
    try:
        known_id = _id_within(source, broker_id)
    except InvalidAnswerError:
        known_id = NONE
    kind = Answer.Kind.MALFORMED
    databases = get_instance(instance).shards[:1]
    return IncomingAnswer(
        instance, NONE, NONE, kind, to_json(raw), known_id, problem=problem, databases=databases
    )


def _id_within(source: str, broker_id: object) -> str:
    """Return a broker's id such that it differs from those of other sources; two may number alike.

    Raise `InvalidAnswerError` if it cannot be stored.
    """
    known_id = _checked_message_id(broker_id)
    if known_id == NONE:
        return NONE
    own = f"{source}: {known_id}"
    return own if len(own) <= MAX_MESSAGE_ID_CHARS else sha256(own.encode()).hexdigest()


def receive_messages(
    messages: Sequence[IncomingAnswer], opened: Opened = write_transaction
) -> list[Answer]:
    """Store checked messages; return their answers in order.

    All of one database, or none, in a transaction that `opened` opens.
    """
    found = [
        message.databases[0] if len(message.databases) == 1 else arrival.database_of(message)
        for message in messages
    ]
    if len(set(found)) == 1:  # as without shards
        return _receive_together(messages, found[0], opened)
    parts: dict[str, list[int]] = {}
    for place, using in enumerate(found):
        parts.setdefault(using, []).append(place)
    answers: dict[int, Answer] = {}
    for using, places in parts.items():
        stored = _receive_together([messages[place] for place in places], using, opened)
        answers |= zip(places, stored, strict=True)
    return [answers[place] for place in range(len(messages))]


def _receive_together(
    messages: Sequence[IncomingAnswer], using: str, opened: Opened
) -> list[Answer]:
    messages = [arrival.under_name_of_job(message, using) for message in messages]
    try:
        with opened(using), collector_paused():
            return arrival.receive_together(messages, clock.now(using), using)
    except IntegrityError:
        # Another one stored a message with one of the ids at the same moment.
        with opened(using):
            return [_receive_by_key(message, using) for message in messages]


def answer_callback(token: Token, kind: str, payload: Any) -> Answer:
    """Store an answer that came by a signed callback URL; return it as stored.

    The URL is valid as long as the job lives: an attempt that was never answered may still settle
    the job after its timeout.
    """
    using = routing.of_id(token.instance, token.job_id)
    payload = _checked_payload(kind, payload)
    found = engine_for(using).type_and_key_of(token.job_id, token.create_time)
    if found is not None:
        settled = _settled(_message_to(token, found, kind, payload), using, token.job_id)
        if settled is not None:
            return settled
    with write_transaction(using):
        job = arrival.lock_row(token.rows(using))
        # By now it may have been pruned, or have another key.
        found = (job.job_type.name, job.job_key) if job else ("pruned job", str(token.job_id))
        message = _message_to(token, found, kind, payload)
        return arrival.receive(message, job, clock.now(using), using)


def _message_to(token: Token, found: tuple[str, str], kind: str, payload: Any) -> IncomingAnswer:
    """Return the message for a job whose type and key are known."""
    return IncomingAnswer(
        token.instance, *found, kind, payload, attempt=token.attempt, part=token.part
    )


def assign(answer: Answer, job_id: int) -> Answer:
    """Match an answer that has no job to a job by hand; return the answer as stored.

    The job takes it as if it had just arrived. Raise `InvalidAnswerError`, with nothing changed, if
    it cannot, or if one of the two no longer exists.
    """
    using = answer.using
    with write_transaction(using):
        job = arrival.lock_job_by_id(job_id, using)
        fresh: Answer | None = locked(Answer.objects.using(using).filter(pk=answer.pk)).first()
        if fresh is None:
            raise InvalidAnswerError(f"answer {answer.pk} does not exist any more; it was pruned.")
        if job is None:
            raise InvalidAnswerError(f"there is no job {job_id}; it was pruned, or never existed.")
        with translation.override(None):  # what is raised is English
            reason = refusal(fresh, job)
        if reason:
            raise InvalidAnswerError(f"answer {fresh.pk} was not matched to {job}: {reason}")
        early.assign(fresh, job, classify(as_incoming(fresh), job), clock.now(using))
        fast_path.log_received(fresh, "answer_matched")
    return fresh


def _message(
    config: InstanceSettings, answer: NewAnswer, kind: str, payload: Any, verb: str
) -> IncomingAnswer:
    """Return the checked message; the payload of `answer` is ignored."""
    job_type, job_key = answer.job_type, answer.job_key
    if job_key is None or job_key == NONE:
        raise InvalidAnswerError(
            f"answer for {job_type!r:.200}: job_key {job_key!r} names no job; give the key of the "
            "job."
        )
    try:
        name, key = checked_type_name(job_type), checked_key(job_key)
    except InvalidJobError as error:
        raise InvalidAnswerError(f"answer: {error}") from error
    payload, part = _checked_payload(kind, payload), _checked_part(answer.part)
    message_id = _checked_message_id(answer.message_id)
    try:
        databases = routing.of_key(config, name, key, answer.shard_key, verb)
    except InvalidJobError as error:
        raise InvalidAnswerError(str(error)) from error
    return IncomingAnswer(
        config.name, name, key, kind, payload, message_id, part=part,
        names=names_of(config.name, name), databases=databases,
    )  # fmt: skip


def _checked_payload(kind: str, payload: Any) -> Any:
    try:
        stored, size = sized_json(payload)
    except ValueError as error:
        raise InvalidAnswerError(f"the {kind} is not JSON: {error}.") from error
    if size > MAX_RESULT_BYTES:  # a response is the result of its job, or what a handler is given
        raise InvalidAnswerError(
            f"the {kind} has {size:,} bytes as JSON, and at most {MAX_RESULT_BYTES:,} are stored; "
            "keep it elsewhere and give a reference to it."
        )
    if kind == Answer.Kind.ERROR and stored in (None, "", NONE):
        raise InvalidAnswerError(
            f"error {payload!r} would mean that there is none; say what went wrong, or complete "
            "the job."
        )
    return stored


def _checked_part(part: str | None) -> str:
    try:
        return UNNAMED if part is None else checked_part(part)
    except InvalidJobError as error:
        raise InvalidAnswerError(f"answer: {error}") from error


def _checked_message_id(message_id: object) -> str:
    if message_id is None:
        return NONE
    usable = isinstance(message_id, str) and 0 < len(message_id) <= MAX_MESSAGE_ID_CHARS
    if usable and message_id.isprintable():  # type: ignore[attr-defined]  # it is text
        return str.__str__(message_id)
    raise InvalidAnswerError(
        f"message_id {message_id!r:.200}: give text of 1 to {MAX_MESSAGE_ID_CHARS} printable "
        "characters, or leave it out."
    )


def _receive_by_key(message: IncomingAnswer, using: str) -> Answer:
    if len(message.names) > 1:
        message = arrival.under_name_of_job(message, using)
        # No constraint keeps one away that is stored under another of these names.
        if known := arrival.find_by_message_id(message, using):
            return known
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


def _receive_for(
    job: Job, kind: str, payload: Any, message_id: str | None, part: str | None
) -> Answer:
    """Store an answer to a job, whatever the job's key is now, and let it act."""
    payload, checked_id = _checked_payload(kind, payload), _checked_message_id(message_id)
    named = _checked_part(part)

    def store() -> Answer:
        with write_transaction(job.using):
            row = arrival.lock_row(Job.objects.using(job.using).row_of(job))
            if row is None:
                raise pruned(job)
            place = row.job_type.instance, row.job_type.name, row.job_key
            names = names_of(*place[:2])
            message = IncomingAnswer(*place, kind, payload, checked_id, part=named, names=names)
            known = arrival.find_by_message_id(message, job.using)
            return known or arrival.receive(message, row, clock.now(job.using), job.using)

    try:
        return store()
    except IntegrityError:  # another message with its id was first, at the same moment
        return store()


def _settled(message: IncomingAnswer, using: str, job_id: int | None = None) -> Answer | None:
    """Settle a job that waits for exactly this message; return the answer, or None."""
    with statement_transaction(using):
        answers = fast_path.settle([message], clock.now(using), using, job_id=job_id)
    if not answers:
        return None
    fast_path.log_received(answers[0])
    return answers[0]
