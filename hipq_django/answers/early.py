"""Early answers: those that came before their job asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q

from hipq_django import transitions
from hipq_django.answers import aggregation
from hipq_django.answers.arrival import lock_final, lock_job, under_name_of_job
from hipq_django.answers.classification import classify
from hipq_django.answers.effects import apply_by_status
from hipq_django.conf.instances import get_instance
from hipq_django.database.locks import locked
from hipq_django.domain.drafts import as_incoming
from hipq_django.domain.states import NONE, AnswerKind, AnswerStatus, Phase, State
from hipq_django.job_types.registry import names_of
from hipq_django.models import Answer, Job


class Early(NamedTuple):
    """Which jobs may be claimed now, and the early answers to their keys."""

    jobs: list[Job]
    answers: list[int]
    """The ids of the answers, which are locked."""


def lock_early(jobs: Sequence[Job], now: datetime, using: str) -> Early:
    """Lock the early answers to the keys of locked jobs that are to be claimed.

    A job is left out if another transaction has locked an answer to its key: an operator may be
    matching that to another job.
    """
    keyed = {(job.job_type.name, job.job_key): job.id for job in jobs if job.job_key != NONE}
    if not keyed:
        return Early(list(jobs), [])
    rows = fresh_early(jobs[0].job_type.instance, now, using).filter(
        job_type__in={name for name, _ in keyed}, job_key__in=[key for _, key in keyed]
    )
    places = rows.values_list("pk", "job_type", "job_key")
    found = {pk: keyed.get((name, key)) for pk, name, key in places}
    wanted = [pk for pk, job in found.items() if job is not None]
    if not wanted:  # as nearly always
        return Early(list(jobs), [])
    mine = set(locked(rows.filter(pk__in=wanted), skip_locked=True).values_list("pk", flat=True))
    left = {found[pk] for pk in wanted if pk not in mine}
    return Early([job for job in jobs if job.id not in left], sorted(mine))


def take_early(jobs: Sequence[Job], answers: Sequence[int], using: str) -> dict[int, Answer]:
    """Accept the answers that came before the claim; return them by the job's id.

    `jobs` are locked and running, and of `answers` those that `lock_early` has found. Called inside
    the claim's transaction.
    """
    found = _by_key([job for job in jobs if job.job_key != NONE], answers, using)
    for pk, answer in _linked([job for job in jobs if job.has_pending_answer], using).items():
        found[pk] = min(found.get(pk, answer), answer, key=_precedence)
    for job in jobs:
        if job.id in found:
            _accept(found[job.id], job)
        elif job.has_pending_answer:
            transitions.clear_pending_answer(job)
    return found


def _precedence(answer: Answer) -> tuple[bool, bool, bool, int]:
    """Accepted answers go first, then responses, then the earliest.

    An answer for the whole job goes before its parts.
    """
    is_error = answer.kind == AnswerKind.ERROR
    return (answer.status != AnswerStatus.ACCEPTED, is_error, bool(answer.part), answer.pk)


def _linked(jobs: Sequence[Job], using: str) -> dict[int, Answer]:
    if not jobs:
        return {}
    by_id = {job.pk: job for job in jobs}
    kept = Answer.objects.using(using).filter(job__in=list(by_id), status__in=aggregation.KEPT)
    answers = kept.exclude(status=AnswerStatus.ACCEPTED, kind=AnswerKind.ERROR)
    found: dict[int, Answer] = {}
    for answer in sorted(answers, key=_precedence, reverse=True):
        job = by_id[answer.job_id or 0]
        if answer.status == AnswerStatus.ACCEPTED or not aggregation.is_part(answer, job):
            found[job.pk] = answer
    return found


def _by_key(jobs: Sequence[Job], ids: Sequence[int], using: str) -> dict[int, Answer]:
    if not (jobs and ids):
        return {}
    by_key = {(job.job_type.name, job.job_key): job for job in jobs}
    answers = Answer.objects.using(using).filter(pk__in=ids, status=AnswerStatus.EARLY, job=None)
    found: dict[int, Answer] = {}
    for answer in sorted(answers, key=_precedence, reverse=True):
        job = by_key.get((answer.job_type, answer.job_key))
        if job is None or mark_late_if_final(answer, using):
            continue
        if aggregation.is_part(answer, job):
            # The request is sent: its handler will say which parts it waits for.
            _link(answer, job, AnswerStatus.EARLY)
        else:
            found[job.pk] = answer
    return found


def fresh_early(instance: str, now: datetime, using: str) -> Any:
    """Return the early answers that found no job and may still be matched."""
    ttl = timedelta(seconds=get_instance(instance).answer_ttl_seconds)
    return Answer.objects.using(using).filter(
        instance=instance, status=AnswerStatus.EARLY, job=None, receive_time__gt=now - ttl
    )


def mark_late_if_final(answer: Answer, using: str) -> bool:
    """Mark an early answer as late if a job with its key is final already; return whether it was.

    Yesterday's message must not settle today's payment.
    """
    names = names_of(answer.instance, answer.job_type)
    final = lock_final(as_incoming(answer, names), using)
    if final is None:
        return False
    answer.job, answer.status = final, AnswerStatus.LATE
    answer.save(using=using, update_fields=["job", "status"])
    return True


def _accept(answer: Answer, job: Job) -> None:
    if answer.status == AnswerStatus.EARLY:
        _link(answer, job, AnswerStatus.ACCEPTED)
    same = Q(job=job)
    if job.job_key != NONE:
        of_key = {"job_type": job.job_type.name, "job_key": job.job_key}
        same |= Q(job=None, instance=answer.instance, **of_key)
    early = Answer.objects.using(job.using).filter(same, status=AnswerStatus.EARLY)
    early = early.exclude(aggregation.parts_of(job))
    early.update(status=AnswerStatus.DUPLICATE, job=job)


def count_early(ids: Sequence[int], now: datetime, using: str) -> None:
    """Count the parts that came before their jobs, locked, had said what they wait for.

    Parts from an earlier attempt go first: they may be all that the job waits for.
    """
    kept = Answer.objects.using(using).filter(
        job__in=ids, status__in=aggregation.KEPT, kind=AnswerKind.RESPONSE
    )
    found = sorted(kept, key=_precedence)
    waiting = Job.objects.using(using).filter(pk__in={answer.job_id for answer in found})
    waiting = waiting.running().filter(phase=Phase.NONE).select_related("job_type", "queue")
    jobs: dict[int | None, Job] = {job.pk: job for job in waiting}
    of_jobs = [answer for answer in found if answer.job_id in jobs]
    early = [answer for answer in of_jobs if answer.status == AnswerStatus.EARLY]
    in_before = {a.job_id: a for a in of_jobs if a.status == AnswerStatus.ACCEPTED}
    for pk, answer in in_before.items():
        apply_by_status(answer, jobs[pk], now)
    for answer in early:
        job = jobs[answer.job_id]
        if aggregation.is_part(answer, job):
            status = aggregation.classify_part(as_incoming(answer), job, aggregation.SETTLED)
            assign(answer, job, status, now)


def mark_early_late(jobs: Sequence[Job], using: str) -> None:
    """Mark as late the answers that waited for jobs which ended before they were claimed."""
    waiting = Answer.objects.using(using).filter(job__in=jobs, status=AnswerStatus.EARLY)
    waiting.update(status=AnswerStatus.LATE)


def match_by_key(job: Job, now: datetime) -> None:
    """Give a locked running job the early answers that wait for its new key."""
    waiting = fresh_early(job.job_type.instance, now, job.using).filter(
        job_type=job.job_type.name, job_key=job.job_key
    )
    for answer in sorted(waiting, key=_precedence):
        match(answer, now, job.using)


def match(answer: Answer, now: datetime, using: str, *, skip_locked: bool = False) -> bool:
    """Give an early answer to the job with its key, if there is one now; return whether it was.

    A job that has not begun takes the answer at its claim, which waits for no window then. With
    `skip_locked` nothing is done if another transaction has locked the job or the answer.
    """
    names = names_of(answer.instance, answer.job_type)
    message = under_name_of_job(as_incoming(answer, names), using)
    job = lock_job(message, using, skip_locked=skip_locked)
    if job is None:
        return False
    early = Answer.objects.using(using).filter(pk=answer.pk, status=AnswerStatus.EARLY, job=None)
    fresh = locked(early, skip_locked=skip_locked).first()
    if fresh is None or mark_late_if_final(fresh, using):
        return False
    # Which of several a job takes that has not begun is decided at its claim.
    is_early = job.state == State.INITIAL
    assign(answer, job, AnswerStatus.EARLY if is_early else classify(message, job), now)
    return True


def assign(answer: Answer, job: Job, status: AnswerStatus, now: datetime) -> None:
    """Give a locked answer to its locked job and let it act."""
    _link(answer, job, status)
    apply_by_status(answer, job, now)


def _link(answer: Answer, job: Job, status: AnswerStatus) -> None:
    answer.job, answer.status, answer.attempt = job, status, job.attempt
    if status == AnswerStatus.ACCEPTED:
        aggregation.number_part(answer, job)
    answer.save(using=job.using, update_fields=["job", "status", "attempt", "part"])
