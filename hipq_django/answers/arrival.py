"""A message that comes in: its job is looked for, it is stored, and acts on its job."""

from __future__ import annotations

from datetime import datetime

from hipq_django.answers import aggregation
from hipq_django.answers.classification import attempt_of, classify
from hipq_django.answers.effects import apply_by_status
from hipq_django.answers.fast_path import log_received
from hipq_django.database.locks import first_for_key_share, locked
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.states import NONE, AnswerStatus
from hipq_django.models import Answer, Job, JobType
from hipq_django.models.job import JobQuerySet


def receive_by_key(message: IncomingAnswer, now: datetime, using: str) -> Answer:
    """Store a message and let it act on the job with its key, in the current transaction.

    Return the answer that has its id already, where there is one.
    """
    return find_by_message_id(message, using) or receive(
        message, lock_job(message, using), now, using
    )


def find_by_message_id(message: IncomingAnswer, using: str) -> Answer | None:
    """Return the answer that was stored of a message with this id, None where none was."""
    if message.message_id == NONE:
        return None
    answers = Answer.objects.using(using).filter(
        instance=message.instance, job_type=message.job_type, message_id=message.message_id
    )
    return answers.first()


def receive(message: IncomingAnswer, job: Job | None, now: datetime, using: str) -> Answer:
    """Store the message and let it act on `job`, in the current transaction.

    `job` is the locked live job, else the newest final one, else None.
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
    """Return the row of a message, not stored yet."""
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


# Correlation: which job a message is for


def lock_job(message: IncomingAnswer, using: str, *, skip_locked: bool = False) -> Job | None:
    """Return the locked job of a message by its key: the live one, else the newest final one.

    A final one is only kept from being pruned before the answer that names it is stored. With
    `skip_locked` None is returned where somebody has locked the live one.
    """
    if message.job_key == NONE:
        return None
    rows = _jobs_with_key(message, using).live()
    live = next(iter(locked(rows, skip_locked=skip_locked)[:1]), None)
    if live is None and skip_locked and rows.exists():
        return None
    return live or lock_final(message, using)


def lock_final(message: IncomingAnswer | Answer, using: str) -> Job | None:
    """Return the newest final job with the key of a message, kept from being pruned."""
    rows = _jobs_with_key(message, using).final()
    final: Job | None = first_for_key_share(rows.order_by("-pk"))
    return final


def _jobs_with_key(message: IncomingAnswer | Answer, using: str) -> JobQuerySet:
    types = JobType.objects.using(using).filter(instance=message.instance, name=message.job_type)
    return Job.objects.using(using).filter(job_type__in=types, job_key=message.job_key).keyed()


def lock_job_by_id(pk: int, using: str) -> Job | None:
    """Return one job, locked; None where it was pruned."""
    return next(iter(locked(Job.objects.using(using).filter(pk=pk))), None)
