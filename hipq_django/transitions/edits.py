"""What changes without a move: a waiting job's time and place; what a running one says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hipq_django.domain.ordering import Ordering
from hipq_django.domain.windows import next_opening, parse_windows
from hipq_django.models import Job
from hipq_django.transitions.updates import rows_of, set_values, update_each
from hipq_django.transitions.values import JobSnapshot


def reschedule(job: Job, moment: datetime, now: datetime) -> None:
    """Give a waiting job another time; this is neither an error nor an attempt."""
    job.scheduled_run_time = moment
    job.rank = job.queue.ordering.rank(moment, job.priority)
    rows_of(job.using, [job.pk]).waiting().update(
        scheduled_run_time=moment, rank=job.rank, update_time=now
    )


def edit(job: Job, values: Mapping[str, Any], now: datetime) -> None:
    """Give a locked waiting job other values; this is neither an error nor an attempt.

    A new time becomes the first one inside its windows; the rank follows. The given copy is
    brought up to date.
    """
    set_values(job, values)
    moment = job.scheduled_run_time
    if "scheduled_run_time" in values:
        moment = first_opening(job, moment)
    place = {"scheduled_run_time": moment, "rank": job.queue.ordering.rank(moment, job.priority)}
    changes = {**values, **place, "update_time": now}
    rows_of(job.using, [job.pk]).waiting().update(**changes)
    set_values(job, changes)


def rank(jobs: Sequence[Job], ordering: Ordering, using: str) -> int:
    """Write the ranks of locked waiting jobs anew where they differ; return how many did."""
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
    """Windows guard the request: a job whose answer is there already does not wait for one."""
    if not has_pending_answer:
        moment = first_opening(job, moment)
    return {"scheduled_run_time": moment, "rank": job.queue.ordering.rank(moment, job.priority)}


def set_key(job: Job, job_key: str, now: datetime) -> None:
    """Give a locked running job another key; raise `IntegrityError` where that one is taken.

    It is the caller's savepoint that is rolled back then.
    """
    _running_row(job).update(job_key=job_key, update_time=now)
    job.job_key = job_key


def set_progress(job: Job, percent: float, message: str) -> None:
    """Write how far a locked running job is.

    The time of the last move stays: it stands in an index, without which PostgreSQL writes the
    new version of the row on the same page, and progress may come often.
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
