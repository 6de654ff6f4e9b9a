"""Keys that only one job may have, and writing under their constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import IntegrityError

from hipq_django.domain.states import NONE
from hipq_django.domain.uniqueness import KEY_FIELDS
from hipq_django.exceptions import DuplicateJobKeyError
from hipq_django.models import Job

TRIES = 5
"""Each further one means that another job took the key and ended in between."""
_WAY_OUT = "Use another key, or on_conflict='return', or 'replace' while that job is not running."

Result = TypeVar("Result")


def under_key(write: Callable[..., Result], check_free: Callable[..., None], *given: Any) -> Result:
    """Return `write(*given)`; `check_free(*given)` raises if another job has its key."""
    for _ in range(TRIES - 1):
        try:
            return write(*given)
        except IntegrityError:
            check_free(*given)
            # The job that had the key has become final meanwhile, so the key is free again.
    return write(*given)


Place = tuple[int, str, str]
"""A place that only one job may take: its type, the scope of the key, and the key."""


def places_of(job: Job) -> list[Place]:
    """Return the places that a job takes, or would take."""
    keys = {scope: getattr(job, field) for scope, field in KEY_FIELDS.items()}
    return [(job.job_type_id, scope, key) for scope, key in keys.items() if key not in {None, NONE}]


def holders(rows: Sequence[Job], using: str) -> dict[Place, Job]:
    """Return the jobs that have the places of these rows."""
    wanted = {place for row in rows for place in places_of(row)}
    found: dict[Place, Job] = {}
    for scope, field in KEY_FIELDS.items():
        keys = sorted({key for _, of, key in wanted if of == scope})
        for start in range(0, len(keys), 300):
            jobs = Job.objects.using(using).holding(scope).select_related("queue", "job_type")
            for job in jobs.filter(**{f"{field}__in": keys[start : start + 300]}):
                place = (job.job_type_id, scope, getattr(job, field))
                if place in wanted:
                    found[place] = job
    return found


def live_with_key(key: str, job: Job, using: str) -> Job | None:
    """Return the live job of the same type that has the key."""
    jobs = Job.objects.using(using).select_related("queue", "job_type")
    return jobs.holding("live").filter(job_type=job.job_type_id, job_key=key).first()


def taken_by(
    holder: Job, way_out: str = _WAY_OUT, verb: str = "", scope: str = "live"
) -> DuplicateJobKeyError:
    """Return the error for a caller that wants a key which another job has."""
    what = {
        "live": f"a live job with key {holder.job_key!r}",
        "waiting": "a job that waits with the same arguments",
        "kept": "a job with the same arguments",
    }[scope]
    return DuplicateJobKeyError(
        f"{verb}job type {holder.job_type.name!r} has {what}: job {holder.pk} is {holder.state}. "
        f"{way_out}",
        holder,
    )


def check_distinct(rows: Sequence[Job]) -> None:
    """Raise `DuplicateJobKeyError` if two new jobs would have the same key."""
    seen: dict[Place, Job] = {}
    for row in rows:
        for place in places_of(row):
            other = seen.setdefault(place, row)
            if other is not row:
                raise DuplicateJobKeyError(
                    f"job type {row.job_type.name!r}: key {place[2]!r} is given twice in one "
                    "enqueue_many; nothing was created.",
                    other,
                )
