"""How jobs end or fail: what all roads to an end write and tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import F
from django.dispatch import Signal

from hipq_django import events
from hipq_django.database.errors import SkippedRowError
from hipq_django.domain.class_names import class_names
from hipq_django.domain.retries import MAX_LOSSES
from hipq_django.domain.serialization import json_without_tokens
from hipq_django.domain.states import NONE, Outcome, State, steps_between
from hipq_django.engines.values import SUCCEEDED
from hipq_django.extensions import hearers_of_ends, note_ended, note_given_up
from hipq_django.models import Answer, Attempt, Job
from hipq_django.models.masking import learn_answers
from hipq_django.signals import job_failed, job_finished, send_after_commit, tell_after_commit
from hipq_django.transitions.history import record_attempts
from hipq_django.transitions.reports import log_lost_decision
from hipq_django.transitions.updates import UNOWNED, chunks, set_values, update_all, update_each


def move(job: Job, new: State, values: Mapping[str, Any], now: datetime) -> None:
    """Move one locked job to `new` by the fewest allowed moves, in this transaction.

    `values` are written with the last step; `error` also if the job passes through error. The given
    copy is brought up to date.
    """
    move_all([job], new, values, now, job.using)


def move_all(
    jobs: Sequence[Job], new: State, values: Mapping[str, Any], now: datetime, using: str
) -> None:
    """Move many jobs, each by its own moves, all with the same values."""
    for old in sorted({State(job.state) for job in jobs}):
        _move_from(old, [job for job in jobs if job.state == old], new, values, now, using)


def _move_from(
    old: State,
    jobs: Sequence[Job],
    new: State,
    values: Mapping[str, Any],
    now: datetime,
    using: str,
) -> None:
    steps, ids = steps_between(old, new), [job.pk for job in jobs]
    for before, step in pairwise((old, *steps)):
        passing: dict[str, Any] = {"state": step, "update_time": now, **UNOWNED}
        if step in (State.RUNNING, State.ERROR):
            passing["error"] = NONE if step == State.RUNNING else values["error"]
        if step == steps[-1]:
            passing |= values
        changed = sum(rows.filter(state=before).update(**passing) for rows in chunks(using, ids))
        if changed < len(ids):
            raise SkippedRowError
        for job in jobs:
            set_values(job, passing)


def finish_locked(ended: Sequence[tuple[Job, Any]], now: datetime, using: str) -> None:
    """Make locked running jobs final, each with its result."""
    if not ended:
        return
    results = {job.pk: {"result": result} for job, result in ended}
    update_each(using, results, **final_values(Outcome.SUCCEEDED, now))
    note_succeeded(results, ended, now, using)


def succeed(job: Job, result: Any, now: datetime) -> None:
    """Make a locked live job final with a result that comes from elsewhere, or late."""
    move(job, State.FINAL, {**SUCCEEDED, "error": NONE, "result": result}, now)
    note_ended([job.pk], job.using)
    send_after_commit(job_finished, [job], job.using)


def note_succeeded(
    ids: Collection[int], ended: Iterable[tuple[Job, Any]], now: datetime, using: str
) -> None:
    """Tell of jobs that have succeeded, each with its result."""
    note_ended(ids, using)
    values = final_values(Outcome.SUCCEEDED, now)
    announce(job_finished, ((job, {**values, "result": result}) for job, result in ended), using)


def mark_answered(jobs: Sequence[Job], now: datetime, using: str) -> None:
    """Note that the answers of locked jobs, which are not final, wait to be processed."""
    update_all(using, [job.pk for job in jobs], has_pending_answer=True, update_time=now)
    for job in jobs:
        job.has_pending_answer = True


def clear_pending_answer(job: Job) -> None:
    """Note that no answer of a locked job waits any more: it is processed, or was taken away."""
    update_all(job.using, [job.pk], has_pending_answer=False)
    job.has_pending_answer = False


def discard_answers(ids: Sequence[int], using: str) -> None:
    """Set aside the responses, and early parts, of jobs that send their request again."""
    kept = (Answer.Status.ACCEPTED, Answer.Status.EARLY)
    Answer.objects.using(using).filter(
        job__in=ids, status__in=kept, kind=Answer.Kind.RESPONSE
    ).update(status=Answer.Status.DISCARDED)


def fail(
    jobs: Sequence[Job], kind: Attempt.Kind, errors: Mapping[int, Any], now: datetime, using: str
) -> None:
    """Move locked running jobs to error; their retry handlers decide in the next batch.

    An error answer may quote the callback URL: its token is not stored here.
    """
    if kind == Attempt.Kind.ANSWERED:
        errors = {job.pk: json_without_tokens(errors[job.pk]) for job in jobs}
    rows = {job.pk: {"error": errors[job.pk]} for job in jobs}
    update_each(using, rows, state=State.ERROR, update_time=now, **UNOWNED)
    record_attempts([_attempt(job, kind, errors[job.pk], now) for job in jobs], using)
    for job in jobs:
        set_values(job, failed_values(errors[job.pk]))
        events.info(
            "attempt_undecided",
            "its policy or retry handler decides",
            row=job,
            kind=kind.value,
            error=errors[job.pk],
        )
    send_after_commit(job_failed, jobs, using)


def _attempt(job: Job, kind: Attempt.Kind, error: Any, now: datetime) -> Attempt:
    return Attempt(
        job_id=job.pk,
        attempt=job.attempt,
        kind=kind,
        error=error,
        exception_classes=class_names(Attempt.CLASSES[kind]),
        worker=job.worker.name if job.worker else NONE,
        start_time=job.start_time,
        end_time=now,
    )


def lose_decisions(jobs: Sequence[Job], now: datetime, using: str) -> set[int]:
    """Count that workers died deciding about locked jobs in error; return the ids of ended jobs.

    Their retry handler may be killing workers: at the third time it is not asked again, and the job
    fails.
    """
    ids = [job.pk for job in jobs]
    last = Attempt.objects.using(using).filter(job__in=ids, attempt=F("job__attempt"))
    last.update(lost_decisions=F("lost_decisions") + 1)
    last = last.filter(lost_decisions__gte=MAX_LOSSES)
    last.update(why_not_again=f"its retry handler lost {MAX_LOSSES} workers")
    attempts = {row.job_id: row for row in last}
    ended = [job for job in jobs if job.pk in attempts]
    learn_answers(ended)
    for job in ended:
        timed_out = attempts[job.pk].kind == Attempt.Kind.TIMED_OUT
        outcome = Outcome.TIMED_OUT if timed_out else Outcome.FAILED
        move(job, State.FINAL, {"outcome": outcome, "has_pending_answer": False}, now)
        transaction.on_commit(partial(log_lost_decision, job, attempts[job.pk]), using=using)
    note_given_up(attempts, using)
    send_after_commit(job_finished, ended, using)
    return set(attempts)


def final_values(outcome: Outcome | str, now: datetime) -> dict[str, Any]:
    """Return the values of a job that ended."""
    values = {"outcome": outcome, "has_pending_answer": False}
    if outcome == Outcome.SUCCEEDED:
        values = SUCCEEDED
    return {"state": State.FINAL, **values, "update_time": now, **UNOWNED}


def failed_values(error: Any) -> dict[str, Any]:
    """Return the values of a job whose attempt failed."""
    return {"state": State.ERROR, "error": error, **UNOWNED}


def announce(
    signal: Signal,
    written: Iterable[tuple[Job, Mapping[str, Any]]],
    using: str,
    raised: Mapping[int, BaseException | None] = MappingProxyType({}),
) -> None:
    """Send `signal` after the commit for jobs, with the values that were written of them.

    Without receivers nothing is done. `raised` is by the jobs' ids.
    """
    if signal.receivers:
        jobs = []
        for job, values in written:
            set_values(job, values)
            jobs.append(job)
        send_after_commit(signal, jobs, using, raised)
    elif signal is job_finished and hearers_of_ends():
        ended = []
        for job, values in written:
            job.outcome = values["outcome"]  # all that is told of the end itself
            ended.append(job)
        tell_after_commit(ended, using)
