"""The attempt that a handler runs: what it stores counts only while that attempt is running."""

from __future__ import annotations

from hipq_django.database.locks import locked
from hipq_django.domain.states import State
from hipq_django.exceptions import StaleAttemptError
from hipq_django.models import Job


def lock_attempt(job: Job, what: str) -> Job:
    """Return the locked row of the running attempt that a handler's `job` is a copy of.

    Raise `StaleAttemptError` if that attempt is over; `what` is what then counts no more.
    """
    rows = Job.objects.using(job.using).row_of(job).select_related("queue", "job_type")
    row: Job | None = locked(rows).first()
    if row is None:
        raise StaleAttemptError(f"{what}: {job} does not exist any more; end the handler.")
    if row.attempt == job.attempt and row.state == State.RUNNING and row.worker_id is not None:
        return row
    said = f"is {row.state}" + (f" ({row.outcome})" if row.is_final else "")
    raise StaleAttemptError(
        f"{what}: {row} {said} in attempt {row.attempt}, and this is attempt {job.attempt}, which "
        "is over. What the handler does counts no more; end it."
    )
