"""What is said of a running job before its answer: its partner's key, its progress, more time.

Who reports about a job that is not running, or unknown, is told so and gets no exception; only
values that cannot be stored are refused, with nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db.models import Q

from hipq_django import events, transitions
from hipq_django.answers import arrival, early
from hipq_django.answers.callback_urls import Token
from hipq_django.api.enqueueing import live_with_key, taken_by, under_key
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.serialization import storable_text
from hipq_django.domain.states import NONE, State
from hipq_django.domain.validation import (
    MAX_SECONDS,
    checked_extension,
    checked_key,
    checked_message,
    checked_number,
    checked_type_name,
)
from hipq_django.exceptions import InvalidJobError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, Job, JobType

if TYPE_CHECKING:
    Lock = Callable[[str], Job | None]


CAP_IN_TIMEOUTS = 10
MAX_MESSAGE_CHARS = 500


def progress(
    job_type: str, job_key: str, percent: float, message: str = "", *, instance: str = DEFAULT
) -> bool:
    """Store how far the running job with this key is; return whether there is one.

    `percent` is from 0 to 100; of `message` 500 characters are kept. A new attempt begins at 0.
    Raise `InvalidJobError` for other values.
    """
    lock = partial(_lock_by_key, instance, job_type, job_key)
    return _report(instance, lock, percent, message)


def extend(
    job_type: str, job_key: str, seconds: float, *, instance: str = DEFAULT
) -> datetime | None:
    """Move the deadline of the running job with this key by `seconds`; return the new one.

    An attempt never gets more than the `max_timeout` of its job type, counted from its claim; by
    default ten times the timeout. None where no job with this key is running. Raise
    `InvalidJobError` for values that are no seconds.
    """
    return _extend(instance, partial(_lock_by_key, instance, job_type, job_key), seconds)


aprogress = sync_to_async(progress)
aextend = sync_to_async(extend)


def progress_callback(token: Token, percent: Any, message: Any) -> bool:
    """Take a report that came by a signed callback URL, if that attempt is running."""
    return _report(token.instance, partial(_lock_by_token, token), percent, message)


def extend_callback(token: Token, seconds: Any) -> datetime | None:
    """Move the deadline by a signed callback URL, if that attempt is running."""
    return _extend(token.instance, partial(_lock_by_token, token), seconds)


def _report(instance: str, lock: Lock, percent: Any, message: Any) -> bool:
    percent, message = checked_number("percent", percent, 0, 100), checked_message(message)
    with write_transaction(get_instance(instance).database):
        job = lock("progress")
        if job is None:
            return False
        text = storable_text(job.masked(message), MAX_MESSAGE_CHARS) or NONE
        transitions.set_progress(job, percent, text)
    return True


def _extend(instance: str, lock: Lock, seconds: Any) -> datetime | None:
    seconds = checked_extension(seconds)
    with write_transaction(get_instance(instance).database):
        job = lock("extend")
        if job is None:
            return None
        now = clock.now(job.using)
        last = job.start_time + timedelta(seconds=_cap(job))
        deadline = later_deadline(job.deadline, seconds, last, now)
        if deadline != job.deadline:
            transitions.set_deadline(job, deadline, now)
        events.info("deadline_moved", **events.fields_of(job), deadline=deadline.isoformat())
    return deadline


def later_deadline(deadline: datetime, seconds: float, last: datetime, now: datetime) -> datetime:
    """Return the deadline moved by `seconds`, never past `last` and never back.

    One that has passed already is moved from `now` on.
    """
    moved = max(deadline, now) + timedelta(seconds=seconds)
    return max(deadline, min(moved, last))


def _cap(job: Job) -> float:
    """Return how many seconds the attempt may take with all its extensions."""
    declared = get_declared(job.job_type.instance, job.job_type.name)
    wanted = declared.max_timeout if declared else None
    return max(job.timeout, wanted or min(CAP_IN_TIMEOUTS * job.timeout, MAX_SECONDS))


# Which job is meant


def _lock_by_key(instance: str, job_type: str, job_key: str, verb: str) -> Job | None:
    using = get_instance(instance).database
    types = JobType.objects.using(using).filter(instance=instance, name=checked_type_name(job_type))
    keyed = Job.objects.using(using).live().filter(job_type__in=types, job_key=checked_key(job_key))
    job: Job | None = next(iter(locked(keyed.keyed())[:1]), None)
    if job is not None and job.state == State.RUNNING:
        return job
    events.warning(f"{verb}_refused", "no such job is running", job_type=job_type, job_key=job_key)
    return None


def _lock_by_token(token: Token, verb: str) -> Job | None:
    job = arrival.lock_job_by_id(token.job_id, get_instance(token.instance).database)
    if job is not None and (job.state, job.attempt) == (State.RUNNING, token.attempt):
        return job
    about: dict[str, Any] = {"job_id": token.job_id, "attempt": token.attempt}
    events.warning(f"{verb}_refused", "it is not running", **about)
    return None


# The key


def set_key(job: Job, job_key: str) -> bool:
    """Do what `Job.set_key` says."""
    key = checked_key(job_key)
    if key == NONE:
        raise InvalidJobError(
            f"set_key: {job_key!r} names no job; give the id that answers will carry."
        )
    return under_key(_set_key, _check_free, job, key)


def _set_key(job: Job, key: str) -> bool:
    """Write the key; return whether it was still needed."""
    with write_transaction(job.using):
        row = _lock_attempt(job)
        if row is None:
            return False
        old, now = row.job_key, clock.now(job.using)
        transitions.set_key(row, key, now)
        early.match_by_key(row, now)
    job.job_key = key
    events.info("key_set", **events.fields_of(job), old_key=old)
    return True


def _lock_attempt(job: Job) -> Job | None:
    """Return the locked row of the attempt that `job` is a copy of; None where it was answered.

    Raise `InvalidJobError` where the attempt is not running.
    """
    row = arrival.lock_job_by_id(job.pk, job.using) if job.pk else None
    if row is None:
        raise InvalidJobError(f"set_key: job {job.pk} does not exist; it was pruned, or never was.")
    if row.attempt != job.attempt:
        raise InvalidJobError(
            f"set_key: {row} is {row.state} in attempt {row.attempt}, and this is attempt "
            f"{job.attempt}: somebody else took the job over. What this attempt returns will be "
            "dropped; end it."
        )
    if row.state == State.RUNNING:
        return row
    if _is_answered(row):
        events.info("key_not_needed", "it was answered already", **events.fields_of(row))
        return None
    raise InvalidJobError(
        f"set_key: {row} is {row.state}; only the key of a running job can be set. Give a new job "
        "its key when it is enqueued; a retry handler sets job.job_key."
    )


def _is_answered(row: Job) -> bool:
    accepted = row.answers.using(row.using).filter(status=Answer.Status.ACCEPTED)
    return accepted.filter(Q(kind=Answer.Kind.RESPONSE) | Q(attempt=row.attempt)).exists()


def _check_free(job: Job, key: str) -> None:
    holder = live_with_key(key, job, job.using)
    if holder is not None and holder != job:
        way_out = "Two live jobs of a type cannot have the same key."
        raise taken_by(holder, way_out, "set_key: ") from None
