"""Keys that only one job may have, and writing under their constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import IntegrityError, connections

from hipq_django.database.locks import for_share
from hipq_django.database.lookups import ids_in, in_parts
from hipq_django.domain.states import NONE, State
from hipq_django.domain.uniqueness import KEY_FIELDS
from hipq_django.exceptions import DuplicateJobKeyError
from hipq_django.models import Job

TRIES = 5
"""Each further one means that another job took the key and ended in between."""

Result = TypeVar("Result")


def under_key(
    write: Callable[..., Result], *given: Any, check_free: Callable[..., None] | None = None
) -> Result:
    """Return `write(*given)`, tried again where another has just taken a key.

    `check_free(*given)` raises if a job has the key, where `write` does not look that up itself.
    """
    for _ in range(TRIES - 1):
        try:
            return write(*given)
        except (IntegrityError, DuplicateJobKeyError):
            if check_free is not None:
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
        for keys in in_parts({key for _, of, key in wanted if of == scope}, using):
            jobs = Job.objects.using(using).holding(scope).select_related("queue", "job_type")
            for job in jobs.filter(**{f"{field}__in": keys}):
                place = (job.job_type_id, scope, getattr(job, field))
                if place in wanted:
                    found[place] = job
    return found


def holder_of(row: Job, found: Mapping[Place, Job]) -> Job | None:
    """Return the job that keeps this one away, of those that `holders` found."""
    return next((found[place] for place in places_of(row) if place in found), None)


def have_not_started(found: Iterable[Job], using: str) -> bool:
    """Return whether those of the jobs that had not started when they were found still have not.

    Inside a transaction none of them starts before its end: it would not see what that has written,
    and there would be no other job that does. SQLite lets nobody else write until then.
    """
    waiting = [job.pk for job in found if job.state == State.INITIAL and job.waiting_key]
    if not (waiting and connections[using].in_atomic_block):
        return True
    rows = Job.objects.using(using).holding("waiting").filter(ids_in("id", waiting))
    return len(for_share(rows.order_by("pk").only("pk"))) == len(waiting)


def check_free(rows: Sequence[Job], using: str, verb: str | None) -> None:
    """Raise `DuplicateJobKeyError` if another job has the place of one of these rows."""
    found = holders(rows, using)
    for row in rows:
        if holder := holder_of(row, found):
            raise taken(row, holder, verb)


def live_with_key(key: str, job: Job, using: str) -> Job | None:
    """Return the live job of the same type that has the key."""
    jobs = Job.objects.using(using).select_related("queue", "job_type")
    return jobs.holding("live").filter(job_type=job.job_type_id, job_key=key).first()


def taken(row: Job, holder: Job, verb: str | None) -> DuplicateJobKeyError:
    """Return the error for a caller whose job would have a place that another job has."""
    others = places_of(holder)
    scope = next(scope for place in places_of(row) if place in others for _, scope, _ in [place])
    what = {"live": "a live job", "waiting": "a job that waits", "kept": "a job"}[scope]
    said = f"{verb}: " if verb else ""
    return DuplicateJobKeyError(
        f"{said}job type {holder.job_type.name!r} has {what} with {_shown(row, scope)}: job "
        f"{holder.pk} is {holder.state}. Let it end, or be pruned, first; use another key; or "
        "enqueue with on_conflict='return'.",
        holder,
    )


def _shown(row: Job, scope: str) -> str:
    """Return what two jobs have in common: a key that was given, or arguments, not their digest."""
    key: str = getattr(row, KEY_FIELDS[scope])
    unique, data = row.job_type.uniqueness, row.job_type.compared(row.job_data)
    if unique and unique.scope == scope and unique.key(data, None) == key:
        return "the same arguments"
    return f"{'key' if scope == 'live' else 'unique_key'} {key!r}"


def check_distinct(rows: Sequence[Job], verb: str | None) -> None:
    """Raise `DuplicateJobKeyError` if two new jobs would have the same key."""
    seen: dict[Place, Job] = {}
    for row in rows:
        for place in places_of(row):
            other = seen.setdefault(place, row)
            if other is not row:
                _, scope, _ = place
                said = f"{verb}: " if verb else ""
                raise DuplicateJobKeyError(
                    f"{said}two of the jobs of type {row.job_type.name!r} have "
                    f"{_shown(row, scope)}; nothing was created. Give each its own.",
                    other,
                )
