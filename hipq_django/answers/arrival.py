"""Receives a message: finds its job, stores it as an answer, and lets it act on the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from hipq_django import events
from hipq_django.answers import aggregation, fast_path
from hipq_django.answers.classification import attempt_of, classify
from hipq_django.answers.effects import apply_by_status
from hipq_django.answers.fast_path import log_received
from hipq_django.database.locks import first_for_key_share, locked
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.states import NONE, AnswerStatus
from hipq_django.engines import engine_for
from hipq_django.models import Answer, Job
from hipq_django.models.job import JobQuerySet


def receive_by_key(message: IncomingAnswer, now: datetime, using: str) -> Answer:
    """Store a message and let it act on the job with its key, in the current transaction.

    If an answer already has the message's id, return that answer.
    """
    return find_by_message_id(message, using) or receive(
        message, lock_job(message, using), now, using
    )


def find_by_message_id(message: IncomingAnswer, using: str) -> Answer | None:
    """Return the answer that was stored for a message with this id, or None.

    Under any name of its job type: an early answer keeps the one under which it was sent.
    """
    if message.message_id == NONE:
        return None
    names = message.names or [message.job_type]
    answers = Answer.objects.using(using).filter(
        instance=message.instance, job_type__in=names, message_id=message.message_id
    )
    return answers.first()


def receive_together(messages: Sequence[IncomingAnswer], now: datetime, using: str) -> list[Answer]:
    """Store messages of one instance and let them act, in the current transaction.

    The usual ones settle their jobs in one statement. Return the answers in the order of their
    messages; lock the jobs in the order of their ids. Raise `IntegrityError` if an id is known.
    """
    first: dict[tuple[str, str], int] = {}
    ids: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for place, message in enumerate(messages):
        key = message.job_type, message.job_key
        if message.message_id not in ids and key not in seen:
            first[key] = place
        seen.add(key)  # a later answer to the same job must not overtake this one
        ids |= {message.message_id} - {NONE}
    engine_for(using).lock_jobs_by_key(messages[0].instance, first)
    settled = fast_path.settle([messages[place] for place in first.values()], now, using)
    answers = {first[answer.job_type, answer.job_key]: answer for answer in settled}
    for place, message in enumerate(messages):
        if place not in answers:
            answers[place] = receive_by_key(message, now, using)
    counts: dict[str, Any] = Counter(str(answer.status) for answer in answers.values())
    events.info("answers_received", **counts)
    return [answers[place] for place in range(len(messages))]


def receive(message: IncomingAnswer, job: Job | None, now: datetime, using: str) -> Answer:
    """Store the message and let it act on `job`, in the current transaction.

    `job` is the locked live job or, if there is none, the newest final one, or None.
    """
    status = classify(message, job)
    answer = new_answer(message, job, status, now)
    if job is not None and status == AnswerStatus.ACCEPTED:
        aggregation.number_part(answer, job)
    answer.save(using=using, force_insert=True)
    if job is not None:
        apply_by_status(answer, job, now)
    log_received(answer)
    return answer


def new_answer(
    message: IncomingAnswer, job: Job | None, status: AnswerStatus, now: datetime
) -> Answer:
    """Return the unsaved row of a message."""
    return Answer(
        instance=message.instance,
        job_type=message.job_type,
        job_key=message.job_key,
        job=job,
        attempt=attempt_of(message, job),
        part=message.part,
        message_id=message.message_id,
        kind=message.kind,
        payload=message.payload,
        problem=message.problem,
        status=status,
        receive_time=now,
    )


# Finding the job: which job a message is for


def database_of(message: IncomingAnswer) -> str:
    """Return the database of the job that a message is for.

    While jobs may be where their keys were before shards were added, that is asked too.
    """
    first, *former = message.databases
    if not former:
        return first
    if any(find_by_message_id(message, using) for using in former):
        return former[0]
    names = message.names or [message.job_type]
    jobs = [
        Job.objects.using(using).with_key(message.job_key, message.instance, names)
        for using in message.databases
    ]
    found = (*(rows.live() for rows in jobs), *(rows.final() for rows in jobs))
    return next((rows.db for rows in found if rows.exists()), first)


def under_name_of_job(message: IncomingAnswer, using: str) -> IncomingAnswer:
    """Return the message under the name that its job has, where the code knows the type by several.

    The live job with its key counts, else the newest final one; a message for none keeps its name.
    """
    if len(message.names) < 2 or message.job_key == NONE:
        return message
    jobs = Job.objects.using(using).with_key(message.job_key, message.instance, message.names)
    of_job = jobs.select_related("job_type")
    found = of_job.live().first() or of_job.final().order_by("-pk").first()
    return replace(message, job_type=found.job_type.name) if found else message


def lock_job(message: IncomingAnswer, using: str, *, skip_locked: bool = False) -> Job | None:
    """Return the job with a message's key: the live one, locked, or else the newest final one.

    A final job is only kept from being pruned before the answer that names it is stored. With
    `skip_locked`, return None if another transaction has locked the live job.
    """
    if message.job_key == NONE:
        return None
    jobs = Job.objects.using(using)
    rows = jobs.with_key(message.job_key, message.instance, [message.job_type]).live()
    live = next(iter(locked(rows, skip_locked=skip_locked)[:1]), None)
    if live is None and skip_locked and rows.exists():
        return None
    return live or lock_final(message, using)


def lock_final(message: IncomingAnswer, using: str) -> Job | None:
    """Return the newest final job with the key of a message, kept from being pruned.

    Of a type that the code knows by several names, whichever of them the message has.
    """
    names = message.names or [message.job_type]
    rows = Job.objects.using(using).with_key(message.job_key, message.instance, names).final()
    final: Job | None = first_for_key_share(rows.order_by("-pk"))
    return final


def lock_job_by_id(pk: int, using: str) -> Job | None:
    """Return one job, locked, or None if it was pruned."""
    return lock_row(Job.objects.using(using).filter(pk=pk))


def lock_row(rows: JobQuerySet) -> Job | None:
    """Return the job of a queryset of at most one, locked, or None if there is none."""
    return next(iter(locked(rows)), None)
