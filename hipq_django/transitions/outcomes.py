"""How running jobs end or fail for other causes than their handler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from django.db import IntegrityError
from django.db.models import F
from django.dispatch import Signal

from hipq_django import events
from hipq_django.domain.retries import MAX_LOSSES, class_names
from hipq_django.domain.states import NONE, Outcome, State, steps_between
from hipq_django.models import Answer, Attempt, Job
from hipq_django.signals import job_failed, job_finished, send_after_commit
from hipq_django.transitions.history import record_attempts
from hipq_django.transitions.updates import UNOWNED, chunks, rows_of, set_values, update_each


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
    values = final_values(Outcome.SUCCEEDED, now)
    update_each(using, results, **values)
    written = ((job, {**values, "result": response}) for job, response in responses)
    announce(job_finished, written, using)


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
        set_values(job, failed_values(errors[job.pk]))
        fields = {**events.fields_of(job), "kind": kind.value, "error": errors[job.pk]}
        events.warning("attempt_failed", "its policy or retry handler decides", **fields)
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
        fields = {**events.fields_of(job), "outcome": outcome.value}
        events.error("job_failed", "final: its retry handler lost its workers", **fields)
    send_after_commit(job_finished, ended, using)
    return set(kinds)


def final_values(outcome: Outcome | str, now: datetime) -> dict[str, Any]:
    """Return the values of a job that ended."""
    values = {"state": State.FINAL, "outcome": outcome, "has_pending_answer": False}
    return {**values, "update_time": now, **UNOWNED}


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

    Where nobody listens nothing is worked out. `raised` is by the jobs' ids.
    """
    if signal.has_listeners():
        jobs = []
        for job, values in written:
            set_values(job, values)
            jobs.append(job)
        send_after_commit(signal, jobs, using, raised)
