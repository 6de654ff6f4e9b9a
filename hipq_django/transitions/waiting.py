"""Waiting jobs: their time and their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.domain.windows import next_opening, parse_windows
from hipq_django.transitions.updates import rows_of, set_values, update_each

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from hipq_django.domain.ordering import Ordering
    from hipq_django.models import Job
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
