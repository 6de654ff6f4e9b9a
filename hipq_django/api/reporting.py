"""Reports about a running job before its answer: the partner's key, progress, more time.

A report about a job that is unknown or not running is no exception; the return value says so. Only
values that cannot be stored are refused, with nothing changed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q

from hipq_django import events, transitions
from hipq_django.answers import arrival, early
from hipq_django.answers.callback_urls import Token
from hipq_django.api.keys import live_with_key, under_key
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.transactions import bounded_transaction
from hipq_django.domain.serialization import storable_text
from hipq_django.domain.states import NONE, State
from hipq_django.domain.tokens import without_tokens
from hipq_django.domain.uniqueness import check_key_may_change, check_key_stays
from hipq_django.domain.validation import (
    MAX_SECONDS,
    checked_extension,
    checked_key,
    checked_message,
    checked_number,
)
from hipq_django.exceptions import DuplicateJobKeyError, InvalidJobError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, Job
from hipq_django.models.job import JobQuerySet
from hipq_django.models.naming import Keyed, jobs_with_key, twin, verb
from hipq_django.sharding import routing

CAP_IN_TIMEOUTS = 10
MAX_MESSAGE_CHARS = 500


@verb
def progress(
    job: Job | Keyed,
    percent: float,
    message: str = "",
    *,
    instance: str = DEFAULT,
    shard_key: str | None = None,
) -> bool:
    """Store the progress of a running job; return whether it is running.

    `percent` is from 0 to 100; of `message` 500 characters are kept. A new attempt begins at 0, a
    success ends at 100. Raise `InvalidJobError` for other values.
    """
    return _report(_meant(job, instance), percent, message)


@verb
def extend(
    job: Job | Keyed, seconds: float, *, instance: str = DEFAULT, shard_key: str | None = None
) -> datetime | None:
    """Move the deadline of a running job by `seconds`; return the new one.

    An attempt never lasts longer than the `max_timeout` of its job type, counted from its start; by
    default ten times the timeout. Return None if the job is not running. Raise `InvalidJobError`
    for an invalid number of seconds.
    """
    return _extend(_meant(job, instance), seconds)


aprogress = twin(progress)
aextend = twin(extend)


def report_attempt(job: Job, percent: float, message: str) -> bool:
    """Do what `Job.report` says."""
    return _report(_meant_by_attempt(job), percent, message)


def extend_attempt(job: Job, seconds: float) -> datetime | None:
    """Do what `Job.extend` says."""
    return _extend(_meant_by_attempt(job), seconds)


def progress_callback(token: Token, percent: Any, message: Any) -> bool:
    """Store a report that came by a signed callback URL, if that attempt is running."""
    return _report(_meant_by_token(token), percent, message)


def extend_callback(token: Token, seconds: Any) -> datetime | None:
    """Move the deadline by a signed callback URL, if that attempt is running."""
    return _extend(_meant_by_token(token), seconds)


def _report(meant: Meant, percent: Any, message: Any) -> bool:
    percent, message = checked_number("percent", percent, 0, 100), checked_message(message)
    with bounded_transaction(meant.rows.db):
        job = _locked(meant, "progress")
        if job is None:
            return False
        text = storable_text(without_tokens(message), MAX_MESSAGE_CHARS) or NONE
        transitions.set_progress(job, percent, text)
    return True


def _extend(meant: Meant, seconds: Any) -> datetime | None:
    seconds = checked_extension(seconds)
    with bounded_transaction(meant.rows.db):
        job = _locked(meant, "extend")
        if job is None:
            return None
        now = clock.now(job.using)
        last = job.start_time + timedelta(seconds=_cap(job))
        deadline = later_deadline(job.deadline, seconds, last, now)
        if deadline != job.deadline:
            transitions.set_deadline(job, deadline, now)
        events.info("deadline_moved", row=job, deadline=deadline.isoformat())
    return deadline


def later_deadline(deadline: datetime, seconds: float, last: datetime, now: datetime) -> datetime:
    """Return the deadline moved by `seconds`, never past `last` and never back.

    A deadline that has passed is moved from `now` on.
    """
    moved = max(deadline, now) + timedelta(seconds=seconds)
    return max(deadline, min(moved, last))


def _cap(job: Job) -> float:
    """Return how many seconds the attempt may take with all its extensions."""
    declared = get_declared(job.job_type.instance, job.job_type.name)
    wanted = declared.max_timeout if declared else None
    return max(job.timeout, wanted or min(CAP_IN_TIMEOUTS * job.timeout, MAX_SECONDS))


# Which job is meant


class Meant(NamedTuple):
    """The job that a report is about; in one attempt, if that is given."""

    rows: JobQuerySet
    """The row of the job, or none."""
    attempt: int | None
    named: dict[str, Any]
    """What the report has named, for the log."""


def _meant(job: Job | Keyed, instance: str) -> Meant:
    if isinstance(job, Job):
        return Meant(Job.objects.using(job.using).row_of(job), None, {"job_id": job.pk})
    named = {"job_type": job.job_type, "job_key": job.job_key}
    first, *others = [rows.live() for rows in jobs_with_key(job, instance)]
    rows = next((rows for rows in (first, *others) if rows.exists()), first) if others else first
    return Meant(rows, None, named)


def _meant_by_attempt(job: Job) -> Meant:
    return _of_attempt(Job.objects.using(job.using).row_of(job), job.pk, job.attempt)


def _meant_by_token(token: Token) -> Meant:
    using = routing.of_id(token.instance, token.job_id)
    return _of_attempt(token.rows(using), token.job_id, token.attempt)


def _of_attempt(rows: JobQuerySet, pk: int, attempt: int) -> Meant:
    return Meant(rows, attempt, {"job_id": pk, "attempt": attempt})


def _locked(meant: Meant, verb: str) -> Job | None:
    """Return the locked row of the job if that is running; else log what was meant."""
    job = arrival.lock_row(meant.rows)
    is_running = job is not None and job.state == State.RUNNING
    if job is not None and is_running and meant.attempt in (None, job.attempt):
        return job
    events.warning(f"{verb}_refused", "no such job is running", row=job, **meant.named)
    return None


# The key


def set_key(job: Job, job_key: str) -> bool:
    """Do what `Job.set_key` says."""
    key = checked_key(job_key)
    if key == NONE:
        raise InvalidJobError(
            f"set_key: {job_key!r} names no job; give the key that answers will have."
        )
    return under_key(_set_key, job, key, check_free=_check_free)


def _set_key(job: Job, key: str) -> bool:
    """Write the key; return whether it was still needed."""
    with bounded_transaction(job.using):
        row = _lock_attempt(job)
        if row is None:
            return False
        _check_key_may_be(row)
        old, now = row.job_key, clock.now(job.using)
        transitions.set_key(row, key, now)
        early.match_by_key(row, now)
    job.job_key = key
    events.info("key_set", row=job, old_key=old)
    return True


def _check_key_may_be(row: Job) -> None:
    job_type = row.job_type
    check_key_may_change(job_type.uniqueness, job_type.name, "set_key")
    if get_instance(job_type.instance).own_tables:
        said = f"set_key {job_type.name!r}"
        check_key_stays(said, row.queue.name, job_type.queue.name)


def _lock_attempt(job: Job) -> Job | None:
    """Return the locked row of the attempt that `job` is a copy of; None if it was answered.

    Raise `InvalidJobError` if the attempt is not running.
    """
    row = arrival.lock_row(Job.objects.using(job.using).row_of(job)) if job.pk else None
    if row is not None and row.attempt == job.attempt:
        if row.state == State.RUNNING:
            return row
        if _is_answered(row):
            events.info("key_not_needed", "it was answered already", row=row)
            return None
    said = f"{row} is {row.state} in attempt {row.attempt}" if row else f"{job} does not exist"
    raise InvalidJobError(
        f"set_key: {said}, and this is attempt {job.attempt}; only the key of a running attempt "
        "can be set. Give a new job its key when it is enqueued; a retry handler sets job.job_key."
    )


def _is_answered(row: Job) -> bool:
    accepted = row.answers.using(row.using).filter(status=Answer.Status.ACCEPTED)
    return accepted.filter(Q(kind=Answer.Kind.RESPONSE) | Q(attempt=row.attempt)).exists()


def _check_free(job: Job, key: str) -> None:
    holder = live_with_key(key, job, job.using)
    if holder is not None and holder != job:
        raise DuplicateJobKeyError(
            f"set_key: job {holder.pk} is {holder.state} and has key {key!r}; two live jobs of a "
            "type cannot have the same key.",
            holder,
        ) from None
