"""A message that comes in: it is stored, and acts on its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq_django.answers import aggregation
from hipq_django.answers.classification import attempt_of, classify
from hipq_django.answers.correlation import lock_job
from hipq_django.answers.effects import apply_by_status
from hipq_django.answers.fast_path import log_received
from hipq_django.domain.states import NONE, AnswerStatus
from hipq_django.models import Answer

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.domain.drafts import IncomingAnswer
    from hipq_django.models import Job


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
