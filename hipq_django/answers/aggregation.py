"""The answers of a job that expects several: which of them count, and the response they make.

The expected answers are known once the handler has returned `WAIT_FOR`. Answers that come before
are kept as early, linked to their job, and counted then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Q

from hipq_django.domain import parts
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.parts import UNNAMED
from hipq_django.domain.states import NONE, AnswerKind, AnswerStatus, Phase, State
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, Job, JobType

SETTLED = (AnswerStatus.ACCEPTED, AnswerStatus.DISCARDED)
KEPT = (AnswerStatus.EARLY, AnswerStatus.ACCEPTED)
"""The statuses of answers that a job has, or will have once it asks for them."""


def counts_answers(job_type: JobType) -> bool:
    """Return whether a response to a job of this type, named or not, is only one of several.

    By the row or by this process's code: each may be ahead of the other while a new version is
    rolled out.
    """
    declared = get_declared(job_type.instance, job_type.name)
    return job_type.counted_answers or bool(declared and declared.counted_answers)


def is_part(answer: IncomingAnswer | Answer, job: Job) -> bool:
    """Return whether an answer to this job is one of several, and not for the whole job."""
    if answer.kind != AnswerKind.RESPONSE:
        return False
    expects = _is_known(job) and job.expects
    counts = counts_answers(job.job_type) and not _waits_for_one(job)
    return bool(answer.part or counts or expects)


def _waits_for_one(job: Job) -> bool:
    """Whether its handler has returned `WAIT`: that of a release that counted no answers."""
    return job.state == State.RUNNING and job.phase == Phase.NONE and not job.expects


def parts_of(job: Job) -> Q:
    """Return the condition for answers to this job that are `is_part`."""
    if counts_answers(job.job_type):
        return Q(kind=AnswerKind.RESPONSE)
    return Q(kind=AnswerKind.RESPONSE) & ~Q(part=UNNAMED)


def classify_part(
    message: IncomingAnswer, job: Job, kept: Iterable[str] = (*SETTLED, AnswerStatus.EARLY)
) -> AnswerStatus:
    """Return what becomes of a part that came for a locked job.

    It is compared with the job's answers that have one of the statuses `kept`.
    """
    before = job.answers.using(job.using).filter(status__in=list(kept))
    if _is_repeated_part(message, job, before):
        return AnswerStatus.DUPLICATE
    if job.is_final or _is_over(message, job, before):
        return AnswerStatus.LATE
    if _is_known(job) and parts.is_wanted(job.expects, message.part):
        return AnswerStatus.ACCEPTED
    waits = job.state == State.RUNNING and _is_known(job)
    return AnswerStatus.UNMATCHED if waits else AnswerStatus.EARLY


def _is_known(job: Job) -> bool:
    """Whether `expects` is valid: not while a handler executes, which will set it again."""
    return job.phase != Phase.REQUEST


def _is_repeated_part(message: IncomingAnswer, job: Job, before: Any) -> bool:
    """Whether the same answer came before: for this part or, if answers are counted, for any.

    Counted messages with ids are already distinguished by these.
    """
    before = before.filter(kind=AnswerKind.RESPONSE)
    if message.part or not counts_answers(job.job_type):
        before = before.filter(part=message.part)
    elif message.message_id != NONE:
        return False
    attempt = job.attempt if message.attempt is None else message.attempt
    counts = before.exclude(~Q(attempt=attempt), status=AnswerStatus.DISCARDED)
    return is_among(message, counts)


def is_among(message: IncomingAnswer, answers: Iterable[Answer]) -> bool:
    """Return whether one of the answers says the same."""
    return any(answer.payload == message.payload for answer in answers)


def _is_over(message: IncomingAnswer, job: Job, before: Any) -> bool:
    """Whether all answers have come, this part has, or the request of the URL was set aside."""
    live = before.exclude(status=AnswerStatus.DISCARDED)
    if (
        job.has_pending_answer
        and live.filter(kind=AnswerKind.RESPONSE, status=AnswerStatus.ACCEPTED).exists()
    ):
        return True
    if message.part and live.filter(kind=AnswerKind.RESPONSE, part=message.part).exists():
        return True
    if message.attempt is None:
        return False
    spent = Q(status=AnswerStatus.DISCARDED, attempt__gte=message.attempt)
    if message.part:
        spent |= Q(kind=AnswerKind.ERROR, part=message.part, attempt=message.attempt)
    return bool(before.filter(spent).exists())


def number_part(answer: Answer, job: Job) -> None:
    """Give a response without a name that is about to be accepted its own name."""
    unnamed = answer.part == UNNAMED and is_part(answer, job)
    if unnamed and isinstance(job.expects, int):
        answer.part = parts.counted_name(len(parts_in(job)) + 1)


def parts_in(job: Job) -> set[str]:
    """Return the names of the parts that were accepted."""
    return set(_accepted(job).values_list("part", flat=True))


def is_complete(job: Job) -> bool:
    """Return whether all expected answers have come."""
    return parts.is_complete(job.expects, parts_in(job))


def response_of(answer: Answer, job: Job) -> Any:
    """Return the response that settles the job: this accepted one, or all parts together."""
    if answer.part == UNNAMED:
        return answer.payload
    rows = _accepted(job).order_by("pk").values_list("part", "payload")
    return parts.collected(job.expects, list(rows))


def _accepted(job: Job) -> Any:
    answers = job.answers.using(job.using).exclude(part=UNNAMED)
    return answers.filter(status=AnswerStatus.ACCEPTED, kind=AnswerKind.RESPONSE)


def answers_so_far(job: Job) -> Any:
    """Do what `Job.answers_so_far` says."""
    kept = job.answers.using(job.using).filter(parts_of(job), status__in=KEPT)
    rows = list(kept.order_by("pk").values_list("part", "payload"))
    if counts_answers(job.job_type):
        return [response for _, response in rows]
    return dict(reversed(rows))  # of two that came early for a part, the first counts


def progress_of(job: Job) -> str:
    """Return in words how many answers have come and which parts are missing; '' for one answer."""
    if not job.expects:
        return ""
    return parts.progress_of(job.expects, parts_in(job))
