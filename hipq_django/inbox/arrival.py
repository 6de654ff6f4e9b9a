"""A message that comes in: it is stored, and acts on its job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hipq_django import gathering
from hipq_django.inbox.effects import work_off
from hipq_django.inbox.finding import lock_job
from hipq_django.inbox.messages import Status
from hipq_django.inbox.statuses import attempt_of, status_of
from hipq_django.models import Answer
from hipq_django.payloads import NONE

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.inbox.messages import Message
    from hipq_django.models import Job

logger = logging.getLogger("hipq_django")


def receive_by_key(message: Message, now: datetime, using: str) -> Answer:
    """Store a message and let it act on the job with its key, in the current transaction.

    Return the answer that has its id already, where there is one.
    """
    return known(message, using) or receive(message, lock_job(message, using), now, using)


def known(message: Message, using: str) -> Answer | None:
    """Return the answer that was stored of a message with this id, None where none was."""
    if message.message_id == NONE:
        return None
    answers = Answer.objects.using(using).filter(
        instance=message.instance, job_type=message.job_type, message_id=message.message_id
    )
    return answers.first()


def receive(message: Message, job: Job | None, now: datetime, using: str) -> Answer:
    """Store the message and let it act on `job`, in the current transaction.

    `job` is the locked live job, else the newest final one, else None.
    """
    status = status_of(message, job)
    answer = new_answer(message, job, status, now)
    if job is not None and status == Status.ACCEPTED:
        gathering.name_counted(answer, job)
    answer.save(using=using, force_insert=True)
    if job is not None:
        work_off(answer, job, now)
    log_received(answer)
    return answer


def new_answer(message: Message, job: Job | None, status: Answer.Status, now: datetime) -> Answer:
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


def log_received(answer: Answer) -> None:
    """Write what became of a message to the log, without its content."""
    logger.info(
        "answer=%s type=%s key=%s kind=%s job=%s %s",
        answer.pk, answer.job_type, answer.job_key, answer.kind, answer.job_id, answer.status,
    )  # fmt: skip
