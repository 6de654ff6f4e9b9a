"""The inbox: which job an answer belongs to, and what it does to it.

Source of the rule "first answer wins": one accepted response per job, by a constraint.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Q

from hipq_django import gathering, moves
from hipq_django.conf import get_instance
from hipq_django.database import kept, locked
from hipq_django.exceptions import InvalidAnswerError
from hipq_django.models import Answer, Attempt, Job, JobType
from hipq_django.parts import UNNAMED
from hipq_django.payloads import NONE
from hipq_django.registry import get_declared
from hipq_django.signals import job_finished, send_after_commit
from hipq_django.states import Outcome, State, Work
from hipq_django.wakeup import wake_workers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

logger = logging.getLogger("hipq_django")

Status, Kind = Answer.Status, Answer.Kind
SETTLING = (Status.ACCEPTED, Status.DISCARDED)


@dataclass(frozen=True, slots=True)
class Message:
    """An answer before it is stored, all of it checked.

    `attempt` is the attempt that a signed callback URL was made for, None where the answer is
    matched by its key. `problem` says why a malformed message is no answer, `part` which of several
    answers it is.
    """

    instance: str
    job_type: str
    job_key: str
    kind: str
    payload: Any
    message_id: str = NONE
    attempt: int | None = None
    problem: str = NONE
    part: str = UNNAMED


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
    status = _status(message, job)
    answer = new_answer(message, job, status, now)
    if job is not None and status == Status.ACCEPTED:
        gathering.name_counted(answer, job)
    answer.save(using=using, force_insert=True)
    if job is not None:
        _work_off(answer, job, now)
    log_received(answer)
    return answer


def log_received(answer: Answer) -> None:
    """Write what became of a message to the log, without its content."""
    logger.info(
        "answer=%s type=%s key=%s kind=%s job=%s %s",
        answer.pk, answer.job_type, answer.job_key, answer.kind, answer.job_id, answer.status,
    )  # fmt: skip


def new_answer(message: Message, job: Job | None, status: Answer.Status, now: datetime) -> Answer:
    """Return the row of a message, not stored yet."""
    return Answer(
        instance=message.instance,
        job_type=message.job_type,
        job_key=message.job_key,
        job=job,
        attempt=_attempt(message, job),
        part=message.part,
        message_id=message.message_id,
        kind=message.kind,
        payload=message.payload,
        problem=message.problem,
        status=status,
        receive_time=now,
    )


def _work_off(answer: Answer, job: Job, now: datetime) -> None:
    """Let an answer that its locked job has got now act on it, by its status."""
    if answer.status == Status.ACCEPTED:
        act(answer, job, now)
    elif answer.status == Status.EARLY and not _is_part(answer, job):
        _hasten(job, now)
    else:
        return
    wake_workers(answer.instance, [job.queue_id], job.using)


def _is_part(answer: Answer, job: Job) -> bool:
    return gathering.is_part(answer.kind, answer.part, job)


def _attempt(message: Message, job: Job | None) -> int:
    if message.attempt is not None:
        return message.attempt
    return job.attempt if job else 0


def _status(message: Message, job: Job | None) -> Answer.Status:
    if message.kind == Kind.MALFORMED:
        return Status.UNMATCHED
    if job is None:
        return Status.EARLY
    is_part = gathering.is_part(message.kind, message.part, job)
    return gathering.status(message, job) if is_part else _status_alone(message, job)


def _status_alone(message: Message, job: Job) -> Answer.Status:
    if _is_repeat(message, job):
        return Status.DUPLICATE
    if job.is_final or _is_answered(message, job) or _is_spent(message, job):
        return Status.LATE
    return Status.EARLY if job.state == State.INITIAL else Status.ACCEPTED


def _is_answered(message: Message, job: Job) -> bool:
    """Whether another answer was first; a response goes before an error that waits."""
    if not job.answered or message.kind == Kind.ERROR:
        return job.answered
    kept = job.answers.using(job.using).filter(kind=Kind.RESPONSE)
    return kept.filter(status__in=(Status.EARLY, Status.ACCEPTED)).exists()


def _is_repeat(message: Message, job: Job) -> bool:
    """Whether the same was answered before, for this attempt where it matters."""
    this_attempt = Q(attempt=_attempt(message, job))
    counts = Q(status__in=SETTLING) & this_attempt | Q(status=Status.EARLY)
    if message.kind == Kind.RESPONSE and message.attempt is None:
        counts |= Q(status=Status.ACCEPTED)
    before = job.answers.using(job.using).filter(counts, kind=message.kind)
    return any(answer.payload == message.payload for answer in before)


def _is_spent(message: Message, job: Job) -> bool:
    """Whether the attempt that is answered was answered before, or its error is old news."""
    attempt = _attempt(message, job)
    if message.kind == Kind.ERROR and (attempt < job.attempt or job.state == State.ERROR):
        return True
    by_url = message.attempt is not None
    if not by_url and message.kind == Kind.RESPONSE:
        return False  # a response by key is worth more than an earlier error
    answers = job.answers.using(job.using).filter(attempt=attempt, status__in=SETTLING)
    other_parts = Q(kind=Kind.RESPONSE, status=Status.ACCEPTED) & ~Q(part=message.part)
    return answers.exclude(other_parts).exists()


def _hasten(job: Job, now: datetime) -> None:
    """Let a waiting job be claimed at once: what it would ask for is there."""
    job.answered = True
    Job.objects.using(job.using).filter(pk=job.pk).update(answered=True, update_time=now)
    moves.reschedule(job, min(job.scheduled_run_time, now), now)


def act(answer: Answer, job: Job, now: datetime) -> None:
    """Let an accepted answer act on its locked job, which is running, in error or in retry.

    One of several does nothing until all are in.
    """
    if answer.kind == Kind.ERROR:
        _fail(job, answer.payload, now)
    elif answer.part and not gathering.is_complete(job):
        return
    elif not has_response_handler(job):
        _finish(job, gathering.response_of(answer, job), now)
    elif job.state == State.RUNNING:
        moves.mark_answered([job], now, job.using)
    else:
        _retry_with_response(job, now)


def has_response_handler(job: Job) -> bool:
    """Return whether the response of a job is for a handler, or is its result as it is."""
    declared = get_declared(job.job_type.instance, job.job_type.name)
    if declared is None:
        return job.job_type.has_response_handler
    return declared.response_handler is not None


def _fail(job: Job, error: Any, now: datetime) -> None:
    if job.state == State.RETRY:
        # What the other system says of this attempt replaces what was guessed, a timeout say.
        job.attempts.using(job.using).filter(attempt=job.attempt).delete()
        moves.walk(job, State.RUNNING, {}, now)
    if job.answered:  # by this error, which is worked off here
        job.answered = False
        Job.objects.using(job.using).filter(pk=job.pk).update(answered=False)
    moves.fail([job], Attempt.Kind.ANSWERED, {job.pk: error}, now, job.using)


def _finish(job: Job, response: Any, now: datetime) -> None:
    values = {
        "outcome": Outcome.SUCCEEDED,
        "error": NONE,
        "result": response,
        "answered": False,
    }
    moves.walk(job, State.FINAL, values, now)
    send_after_commit(job_finished, [job], job.using)


def _retry_with_response(job: Job, now: datetime) -> None:
    if job.state == State.ERROR:
        moves.walk(job, State.RETRY, {"error": job.error}, now)
    _hasten(job, now)


# Looking for the job of a message


def lock_job(message: Message, using: str) -> Job | None:
    """Return the locked job of a message by its key: the live one, else the newest final one.

    A final one is only kept from being pruned before the answer that names it is stored.
    """
    if message.job_key == NONE:
        return None
    jobs = Job.objects.using(using).filter(
        job_type__in=JobType.objects.using(using).filter(
            instance=message.instance, name=message.job_type
        ),
        job_key=message.job_key,
    )
    live = next(iter(locked(jobs.live().exclude(job_key=NONE))[:1]), None)
    final: Job | None = kept(jobs.final().exclude(job_key=NONE).order_by("-pk"))
    return live or final


def lock_job_by_id(pk: int, using: str) -> Job | None:
    """Return one job, locked; None where it was pruned."""
    return next(iter(locked(Job.objects.using(using).filter(pk=pk))), None)


# Looking for the answers of jobs that are being claimed


def take_early(jobs: Sequence[Job], now: datetime, using: str) -> dict[int, Answer]:
    """Accept the answers that came before the claim; return them by the job's id.

    `jobs` are locked and running. Called inside the claim's transaction.
    """
    found = _by_key([job for job in jobs if job.job_key != NONE], now, using)
    for pk, answer in _linked([job for job in jobs if job.answered], using).items():
        found[pk] = min(found.get(pk, answer), answer, key=_precedence)
    for job in jobs:
        if job.id in found:
            _accept(found[job.id], job)
        elif job.answered:
            job.answered = False
            Job.objects.using(using).filter(pk=job.pk).update(answered=False)
    return found


def _precedence(answer: Answer) -> tuple[bool, bool, bool, int]:
    """An answer that was accepted already goes first, then a response, then what came first.

    One for the whole job goes before its parts.
    """
    is_error = answer.kind == Kind.ERROR
    return (answer.status != Status.ACCEPTED, is_error, bool(answer.part), answer.pk)


def _linked(jobs: Sequence[Job], using: str) -> dict[int, Answer]:
    if not jobs:
        return {}
    kept = Answer.objects.using(using).filter(
        job__in=[job.pk for job in jobs], status__in=(Status.EARLY, Status.ACCEPTED)
    )
    answers = kept.exclude(status=Status.ACCEPTED, kind=Kind.ERROR)
    by_id = {job.pk: job for job in jobs}
    found: dict[int, Answer] = {}
    for answer in sorted(answers, key=_precedence, reverse=True):
        job = by_id[answer.job_id or 0]
        if answer.status == Status.ACCEPTED or not _is_part(answer, job):
            found[job.pk] = answer
    return found


def _by_key(jobs: Sequence[Job], now: datetime, using: str) -> dict[int, Answer]:
    if not jobs:
        return {}
    by_key = {(job.job_type.name, job.job_key): job for job in jobs}
    answers = fresh_early(jobs[0].job_type.instance, now, using).filter(
        job_type__in={job.job_type.name for job in jobs},
        job_key__in=[job.job_key for job in jobs],
    )
    found: dict[int, Answer] = {}
    # Locked, because an operator may be matching one of them to another job.
    for answer in sorted(locked(answers), key=_precedence, reverse=True):
        job = by_key.get((answer.job_type, answer.job_key))
        if job is None or is_old_news(answer, using):
            continue
        if _is_part(answer, job):
            # The request is sent: what it is a part of, its handler will say.
            _link(answer, job, Status.EARLY)
        else:
            found[job.pk] = answer
    return found


def fresh_early(instance: str, now: datetime, using: str) -> Any:
    """Return the early answers that no job was there for and that may still be matched."""
    ttl = timedelta(seconds=get_instance(instance).answer_ttl_seconds)
    return Answer.objects.using(using).filter(
        instance=instance, status=Status.EARLY, job=None, receive_time__gt=now - ttl
    )


def is_old_news(answer: Answer, using: str) -> bool:
    """Set an early answer aside as late if a job with its key is final already; return whether.

    Nobody's payment may be settled by yesterday's message.
    """
    types = JobType.objects.using(using).filter(instance=answer.instance, name=answer.job_type)
    finals = Job.objects.using(using).final().filter(job_type__in=types, job_key=answer.job_key)
    final = kept(finals.exclude(job_key=NONE).order_by("-pk"))
    if final is None:
        return False
    answer.job, answer.status = final, Status.LATE
    answer.save(update_fields=["job", "status"])
    return True


def _accept(answer: Answer, job: Job) -> None:
    if answer.status == Status.EARLY:
        _link(answer, job, Status.ACCEPTED)
    same = Q(job=job)
    if job.job_key != NONE:
        same |= Q(
            job=None,
            instance=answer.instance,
            job_type=job.job_type.name,
            job_key=job.job_key,
        )
    early = Answer.objects.using(job.using).filter(same, status=Status.EARLY)
    early = early.exclude(gathering.parts_of(job))
    early.update(status=Status.DUPLICATE, job=job)


def _link(answer: Answer, job: Job, status: Answer.Status) -> None:
    answer.job, answer.status, answer.attempt = job, status, job.attempt
    if status == Status.ACCEPTED:
        gathering.name_counted(answer, job)
    answer.save(update_fields=["job", "status", "attempt", "part"])


def count_early(ids: Sequence[int], now: datetime, using: str) -> None:
    """Count the parts that came before their jobs, locked, had said what they wait for.

    What is in from an earlier attempt goes first: it may be all that is waited for.
    """
    kept = Answer.objects.using(using).filter(
        job__in=ids, status__in=(Status.EARLY, Status.ACCEPTED), kind=Kind.RESPONSE
    )
    found = sorted(kept, key=_precedence)
    waiting = Job.objects.using(using).filter(pk__in={answer.job_id for answer in found})
    waiting = waiting.running().filter(work=Work.NONE).select_related("job_type", "queue")
    jobs = {job.pk: job for job in waiting}
    in_before = {answer.job_id: answer for answer in found if answer.status == Status.ACCEPTED}
    for job in jobs.values():
        if job.pk in in_before:
            _work_off(in_before[job.pk], job, now)
    for answer in found:
        asked = jobs.get(answer.job_id or 0)
        if asked is not None and answer.status == Status.EARLY and _is_part(answer, asked):
            status = gathering.status(_message_of(answer), asked, gathering.SETTLED)
            _give(answer, asked, status, now)


def close(job: Job) -> None:
    """Set the answers aside that waited for a job which ended before it was claimed."""
    waiting = Answer.objects.using(job.using).filter(job=job, status=Status.EARLY)
    waiting.update(status=Status.LATE)


def take_waiting(job: Job, now: datetime) -> None:
    """Give a locked running job the early answers that wait for the key it has got now."""
    name = job.job_type.name
    waiting = fresh_early(job.job_type.instance, now, job.using).filter(
        job_type=name, job_key=job.job_key
    )
    for answer in sorted(waiting, key=_precedence):
        match(answer, now, job.using)


def match(answer: Answer, now: datetime, using: str) -> bool:
    """Give an early answer to the job with its key if that is running or in retry by now."""
    message = _message_of(answer)
    job = lock_job(message, using)
    if job is None or job.state == State.INITIAL:
        return False
    early = Answer.objects.using(using).filter(pk=answer.pk, status=Status.EARLY, job=None)
    fresh = locked(early).first()
    if fresh is None or is_old_news(fresh, using):
        return False
    _give(answer, job, _status(message, job), now)
    return True


def _message_of(answer: Answer) -> Message:
    return Message(
        answer.instance, answer.job_type, answer.job_key, answer.kind, answer.payload,
        answer.message_id, part=answer.part,
    )  # fmt: skip


def _give(answer: Answer, job: Job, status: Answer.Status, now: datetime) -> None:
    _link(answer, job, status)
    _work_off(answer, job, now)


# Matching by hand


def assign(answer: Answer, job: Job, now: datetime) -> None:
    """Give a locked answer that no job has to a locked job, as if it came for it now.

    Raise `InvalidAnswerError`, with nothing changed, where the job cannot take it.
    """
    reason = refusal(answer, job)
    if reason:
        raise InvalidAnswerError(f"answer {answer.pk} was not matched: {reason}")
    _give(answer, job, _status(_message_of(answer), job), now)
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
    if _status(_message_of(answer), job) not in (Status.ACCEPTED, Status.EARLY):
        return (
            f"attempt {job.attempt} of {job} was answered already, its error is known, or it does "
            f"not wait for part {answer.part!r}."
        )
    return ""
