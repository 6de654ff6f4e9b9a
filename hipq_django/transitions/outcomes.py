"""How running jobs end or fail for other causes than their handler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError
from django.db.models import F

from hipq_django.domain.retries import MAX_LOSSES, class_names
from hipq_django.domain.states import NONE, Outcome, State, steps_between
from hipq_django.models import Answer, Attempt
from hipq_django.signals import job_failed, job_finished, send_after_commit
from hipq_django.transitions.history import record_attempts
from hipq_django.transitions.updates import UNOWNED, chunks, rows_of, set_values, update_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from hipq_django.models import Job

logger = logging.getLogger("hipq_django")


def move(job: Job, new: State, values: Mapping[str, Any], now: datetime) -> None:
    """Move one locked job to `new` on the shortest way of allowed moves, in this transaction.

    `values` are written with the last step; `error` also where the way leads through error. The
    given copy is brought up to date.
    """
    steps = steps_between(State(job.state), new)
    for step in steps:
        passing: dict[str, Any] = {"state": step, "update_time": now, **UNOWNED}
        if step in (State.RUNNING, State.ERROR):
            passing["error"] = NONE if step == State.RUNNING else values["error"]
        if step == steps[-1]:
            passing |= values
        changed = rows_of(job.using, [job.pk]).filter(state=job.state).update(**passing)
        if not changed:
            raise IntegrityError(f"job {job.pk} left state {job.state} although it was locked")
        set_values(job, passing)


def finish_answered(responses: Sequence[tuple[Job, Any]], now: datetime, using: str) -> None:
    """Make locked running jobs final by the responses that nobody handles."""
    if not responses:
        return
    results = {job.pk: {"result": response} for job, response in responses}
    update_each(using, results, **succeeded_values(now))
    if job_finished.has_listeners():
        for job, response in responses:
            set_values(job, {**succeeded_values(now), "result": response})
        send_after_commit(job_finished, [job for job, _ in responses], using)


def mark_answered(jobs: Sequence[Job], now: datetime, using: str) -> None:
    """Note that the responses of locked running jobs wait for their response handlers."""
    ids = [job.pk for job in jobs]
    for rows in chunks(using, ids):
        rows.update(has_pending_answer=True, update_time=now)
    for job in jobs:
        job.has_pending_answer = True


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

    What another system answered may quote sensitive fields: it is masked, the inbox has it whole.
    """
    if kind == Attempt.Kind.ANSWERED:
        errors = {job.pk: job.masked(errors[job.pk]) for job in jobs}
    rows = {job.pk: {"error": errors[job.pk]} for job in jobs}
    update_each(using, rows, state=State.ERROR, update_time=now, **UNOWNED)
    record_attempts([_attempt(job, kind, errors[job.pk], now) for job in jobs], using)
    for job in jobs:
        set_values(job, {"state": State.ERROR, "error": errors[job.pk], **UNOWNED})
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
    """Count that workers died deciding about locked jobs in error; return the ids of the ended.

    A retry handler may be what kills them: the third time is its end, and the job's.
    """
    ids = [job.pk for job in jobs]
    last = Attempt.objects.using(using).filter(job__in=ids, attempt=F("job__attempt"))
    last.update(lost_decisions=F("lost_decisions") + 1)
    kinds = dict(last.filter(lost_decisions__gte=MAX_LOSSES).values_list("job", "kind"))
    ended = [job for job in jobs if job.pk in kinds]
    for job in ended:
        timed_out = kinds[job.pk] == Attempt.Kind.TIMED_OUT
        outcome = Outcome.TIMED_OUT if timed_out else Outcome.FAILED
        move(job, State.FINAL, {"outcome": outcome, "has_pending_answer": False}, now)
        logger.error("job=%s attempt=%s retry handler lost its workers", job.pk, job.attempt)
    send_after_commit(job_finished, ended, using)
    return set(kinds)


def succeeded_values(now: datetime) -> dict[str, Any]:
    """Return the values of a job that succeeded."""
    return {
        "state": State.FINAL,
        "outcome": Outcome.SUCCEEDED,
        "has_pending_answer": False,
        "update_time": now,
        **UNOWNED,
    }
