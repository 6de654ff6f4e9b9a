"""What is said of a running job while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.transitions.updates import rows_of, set_values

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.models import Job


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
