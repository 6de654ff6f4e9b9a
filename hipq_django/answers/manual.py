"""Matching an answer to a job by hand."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hipq_django.answers.classification import classify
from hipq_django.answers.early import assign as assign_early
from hipq_django.domain.drafts import as_incoming
from hipq_django.domain.states import AnswerStatus
from hipq_django.exceptions import InvalidAnswerError

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.models import Answer, Job

logger = logging.getLogger("hipq_django")


def assign(answer: Answer, job: Job, now: datetime) -> None:
    """Give a locked answer that no job has to a locked job, as if it came for it now.

    Raise `InvalidAnswerError`, with nothing changed, where the job cannot take it.
    """
    reason = refusal(answer, job)
    if reason:
        raise InvalidAnswerError(f"answer {answer.pk} was not matched: {reason}")
    assign_early(answer, job, classify(as_incoming(answer), job), now)
    logger.info(
        "answer=%s type=%s key=%s kind=%s job=%s matched by hand: %s",
        answer.pk, answer.job_type, answer.job_key, answer.kind, job.pk, answer.status,
    )  # fmt: skip


def refusal(answer: Answer, job: Job) -> str:
    """Return why this job cannot take this answer, '' where it can."""
    if not answer.is_free:
        return (
            f"it is {answer.status}, its kind is {answer.kind}; only early and unmatched answers "
            "without a job can be."
        )
    if (job.job_type.instance, job.job_type.name) != (answer.instance, answer.job_type):
        return (
            f"it is for job type {answer.job_type!r} of instance {answer.instance!r}, and {job} "
            f"is of type {job.job_type.name!r} of instance {job.job_type.instance!r}."
        )
    if job.is_final:
        return (
            f"{job} is final ({job.outcome}) and never changes; requeue it and match the fresh job."
        )
    if classify(as_incoming(answer), job) not in (AnswerStatus.ACCEPTED, AnswerStatus.EARLY):
        return (
            f"attempt {job.attempt} of {job} was answered already, its error is known, or it does "
            f"not wait for part {answer.part!r}."
        )
    return ""
