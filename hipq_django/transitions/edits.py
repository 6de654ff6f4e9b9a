"""Changes without a move: the time and place of a waiting job, the progress of a running one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hipq_django.domain.ordering import Ordering
from hipq_django.domain.windows import next_opening, parse_windows
from hipq_django.models import Job
from hipq_django.transitions.updates import rows_of, set_values, update_each
from hipq_django.transitions.values import JobSnapshot


def reschedule(times: Mapping[Job, datetime], now: datetime, using: str) -> None:
    """Give locked waiting jobs their new times; this is neither an error nor an attempt."""
    places = {}
    for job, moment in times.items():
        rank = job.queue.ordering.rank(moment, job.priority)
        places[job.pk] = {"scheduled_run_time": moment, "rank": rank}
        set_values(job, places[job.pk])
    update_each(using, places, update_time=now)


def bring_forward(job: Job, moment: datetime, now: datetime) -> None:
    """Let a locked waiting job run from a moment on, as its time windows let it.

    This is neither an error nor an attempt. A job that comes earlier keeps its place.
    """
    there = moment if job.has_pending_answer else first_opening(job, moment)
    if there < job.scheduled_run_time:
        reschedule({job: there}, now, job.using)


def run_now(jobs: Sequence[Job], now: datetime, using: str) -> None:
    """Make locked waiting jobs due, and drop their time windows; the copies are brought up to date.

    This is neither an error nor an attempt. A job that is due already keeps its place.
    """
    same: dict[str, Any] = {"time_windows": [], "hold_time": None, "update_time": now}
    times = {}
    for job in jobs:
        moment, rank = job.scheduled_run_time, job.rank
        if job.hold_time is not None or moment > now:
            moment, rank = now, job.queue.ordering.rank(now, job.priority)
        times[job.pk] = {"scheduled_run_time": moment, "rank": rank}
    update_each(using, times, **same)
    for job in jobs:
        set_values(job, same | times[job.pk])


def unhold(jobs: Sequence[Job], now: datetime, using: str) -> None:
    """Give locked jobs that waited for others the time they were wanted at, and their place.

    Those whose answer has come need not wait for that time: their request is not sent any more.
    """
    times = {}
    for job in jobs:
        # Not before now: what is behind the low-water mark of its queue would be found late.
        is_answered = job.has_pending_answer
        moment = now if is_answered else max(job.hold_time or now, now)
        times[job.pk] = next_time(job, moment, has_pending_answer=is_answered)
    update_each(using, times, hold_time=None, update_time=now)
    for job in jobs:
        set_values(job, {"hold_time": None, **times[job.pk]})


def edit(job: Job, values: Mapping[str, Any], now: datetime) -> None:
    """Give a locked waiting job other values; this is neither an error nor an attempt.

    A new time is moved into the job's windows; the rank follows. For a job that waits for others
    it is kept until they have ended. The given copy is brought up to date.
    """
    if job.hold_time is not None:
        values = dict(values)
        values["hold_time"] = values.pop("scheduled_run_time", job.hold_time)
    set_values(job, values)
    moment = job.scheduled_run_time if job.hold_time is None else job.hold_time
    if "scheduled_run_time" in values or "hold_time" in values:
        moment = first_opening(job, moment)
    place: dict[str, Any] = {"hold_time": moment}
    if job.hold_time is None:
        rank = job.queue.ordering.rank(moment, job.priority)
        place = {"scheduled_run_time": moment, "rank": rank}
    changes = {**values, **place, "update_time": now}
    rows_of(job.using, [job.pk]).waiting().update(**changes)
    set_values(job, changes)


def rank(jobs: Sequence[Job], ordering: Ordering, using: str) -> int:
    """Write the ranks of locked waiting jobs that have changed; return how many have."""
    ranks = {job.pk: {"rank": ordering.rank(job.scheduled_run_time, job.priority)} for job in jobs}
    changed = {job.pk: ranks[job.pk] for job in jobs if job.rank != ranks[job.pk]["rank"]}
    update_each(using, changed)
    return len(changed)


def first_opening(job: Job | JobSnapshot, moment: datetime) -> datetime:
    """Return the first moment from `moment` on at which the job's time windows let it run."""
    if not job.time_windows:
        return moment
    return next_opening(parse_windows(job.time_windows), moment, job.job_type.zone)


def next_time(
    job: Job | JobSnapshot, moment: datetime, *, has_pending_answer: bool
) -> dict[str, Any]:
    """Windows apply to the request: a job whose answer has come does not wait for one."""
    if not has_pending_answer:
        moment = _readable_opening(job, moment)
    return {"scheduled_run_time": moment, "rank": job.queue.ordering.rank(moment, job.priority)}


def _readable_opening(job: Job | JobSnapshot, moment: datetime) -> datetime:
    """Return that moment; `moment` itself if this machine cannot read the windows.

    The job moves on in any case. A claim looks at its windows again, and says what is wrong.
    """
    try:
        return first_opening(job, moment)
    except Exception:  # such as a time zone that this machine lacks
        return moment


def set_key(job: Job, job_key: str, now: datetime) -> None:
    """Give a locked running job another key; raise `IntegrityError` if the key is taken.

    Then the caller's savepoint is rolled back.
    """
    _running_row(job).update(job_key=job_key, update_time=now)
    job.job_key = job_key


def set_progress(job: Job, percent: float, message: str) -> None:
    """Write the progress of a locked running job.

    `update_time` stays unchanged, because it is indexed: without a change in an index PostgreSQL
    writes the new version of the row on the same page, and progress may come often.
    """
    _running_row(job).update(progress=percent, progress_message=message)


def set_deadline(job: Job, deadline: datetime, now: datetime) -> None:
    """Let the attempt of a locked running job time out at another moment."""
    extended = job.extended_seconds + (deadline - job.deadline).total_seconds()
    values = {"deadline": deadline, "extended_seconds": extended, "update_time": now}
    _running_row(job).update(**values)
    set_values(job, values)


def _running_row(job: Job) -> Any:
    return rows_of(job.using, [job.pk]).running().filter(attempt=job.attempt)
