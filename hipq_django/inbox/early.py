"""Answers that came before their job asked for them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Q

from hipq_django import gathering
from hipq_django.conf import get_instance
from hipq_django.database import kept, locked
from hipq_django.inbox.effects import work_off
from hipq_django.inbox.finding import lock_job
from hipq_django.inbox.messages import Kind, Status, message_of
from hipq_django.inbox.statuses import is_part_of, status_of
from hipq_django.models import Answer, Job, JobType
from hipq_django.payloads import NONE
from hipq_django.states import State, Work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


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
        if answer.status == Status.ACCEPTED or not is_part_of(answer, job):
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
        if is_part_of(answer, job):
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
    answer.save(using=using, update_fields=["job", "status"])
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
            work_off(in_before[job.pk], job, now)
    for answer in found:
        asked = jobs.get(answer.job_id or 0)
        if asked is not None and answer.status == Status.EARLY and is_part_of(answer, asked):
            status = gathering.status(message_of(answer), asked, gathering.SETTLED)
            give(answer, asked, status, now)


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


def match(answer: Answer, now: datetime, using: str, *, skip_locked: bool = False) -> bool:
    """Give an early answer to the job with its key if that is running or in retry by now.

    With `skip_locked` it is left where somebody has locked the job or the answer.
    """
    message = message_of(answer)
    job = lock_job(message, using, skip_locked=skip_locked)
    if job is None or job.state == State.INITIAL:
        return False
    early = Answer.objects.using(using).filter(pk=answer.pk, status=Status.EARLY, job=None)
    fresh = locked(early, skip_locked=skip_locked).first()
    if fresh is None or is_old_news(fresh, using):
        return False
    give(answer, job, status_of(message, job), now)
    return True


def give(answer: Answer, job: Job, status: Answer.Status, now: datetime) -> None:
    """Give a locked answer to its locked job and let it act."""
    _link(answer, job, status)
    work_off(answer, job, now)


def _link(answer: Answer, job: Job, status: Answer.Status) -> None:
    answer.job, answer.status, answer.attempt = job, status, job.attempt
    if status == Status.ACCEPTED:
        gathering.name_counted(answer, job)
    answer.save(using=job.using, update_fields=["job", "status", "attempt", "part"])
