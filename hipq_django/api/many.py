"""The verbs on many jobs: page by page, each job counted as done or skipped with the reason.

Each page is a separate transaction, unless one is open. If a call is interrupted, a second one
continues it and does nothing twice: a job that was requeued knows its successor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from hipq_django import transitions
from hipq_django.api.control import cancel_page
from hipq_django.api.keys import holders, places_of, under_key
from hipq_django.api.pages import ManyResult, Perform, in_pages, pages_of
from hipq_django.api.requeueing import copy_of_final, place_of_copy, store_copies
from hipq_django.database import clock
from hipq_django.database.transactions import check_commits
from hipq_django.dependencies.following import drop_needs
from hipq_django.domain.states import WAITING, State
from hipq_django.engines import engine_for
from hipq_django.models import Job


def requeue_many(jobs: QuerySet[Job]) -> ManyResult:
    """Create a new job from each final job of a queryset that was not requeued yet.

    Each has the values and the `inputs` of its `origin`, which stays as it is, and follows the new
    jobs of what its origin followed. Jobs are skipped if they are not final, if they were requeued
    already, or if a live job has their key.
    """
    return _do(jobs, _requeue)


def cancel_many(jobs: QuerySet[Job]) -> ManyResult:
    """Make each live job of a queryset final with the outcome cancelled; see `cancel`."""
    return _do(jobs, partial(cancel_page, "Cancelled"))


def run_now_many(jobs: QuerySet[Job]) -> ManyResult:
    """Let each waiting job of a queryset run as soon as its queue allows; see `run_now`.

    Jobs are skipped if they are not waiting, or if they are due already.
    """
    return _do(jobs, _run_now)


arequeue_many = sync_to_async(requeue_many)
acancel_many = sync_to_async(cancel_many)
arun_now_many = sync_to_async(run_now_many)


def _do(jobs: QuerySet[Job], perform: Perform) -> ManyResult:
    """Do it to all jobs that nobody else has locked."""
    using = _database_of(jobs)
    check_commits(using)
    return in_pages(pages_of(jobs.using(using)), perform, using, skip_locked=True)


def _database_of(jobs: QuerySet[Job]) -> str:
    """Return the alias that the queryset names, or else where a router lets jobs be written."""
    writing: Any = jobs.all()
    writing._for_write = True  # as Django's own update() does
    return str(writing.db)


def _is(state: State) -> str:
    return f"it is {state.value}"


# Requeue


def _requeue(page: Sequence[Job], using: str) -> dict[int, str]:
    reasons = {job.pk: _is(State(job.state)) for job in page if not job.is_final}
    again = Job.objects.using(using).filter(origin__in=[job.pk for job in page])
    for pk in again.values_list("origin_id", flat=True):
        reasons.setdefault(pk or 0, "it was requeued already")
    for job in page:  # a second call could not know that this one has requeued it there
        if (place := place_of_copy(job)) != using:
            reasons.setdefault(job.pk, f"its key leads to {place} by now; requeue it by itself")
    origins = [job for job in page if job.pk not in reasons]
    return reasons | under_key(_store_copies, origins, using)


def _store_copies(origins: Sequence[Job], using: str) -> dict[int, str]:
    """Create the new jobs; return why the others are skipped, by the ids of their origins."""
    copies = {job.pk: copy_of_final(job) for job in origins}
    skipped = dict.fromkeys(_with_taken_keys(copies, using), "its key is in use")
    store_copies({pk: copy for pk, copy in copies.items() if pk not in skipped}, using)
    return skipped


def _with_taken_keys(copies: Mapping[int, Job], using: str) -> set[int]:
    """Return the ids of the jobs whose copy has a taken key: by a job, or a later one of these."""
    places = set(holders(list(copies.values()), using))
    found = set()
    for pk, copy in reversed(list(copies.items())):
        wanted = places_of(copy)
        if places.isdisjoint(wanted):
            places.update(wanted)
        else:
            found.add(pk)
    return found


# Run now


def _run_now(page: Sequence[Job], using: str) -> dict[int, str]:
    now = clock.now(using)
    reasons = {}
    for job in page:
        if job.state not in WAITING:
            reasons[job.pk] = _is(State(job.state))
        elif job.scheduled_run_time <= now and not job.time_windows:
            reasons[job.pk] = "it is due already"
    moved = [job for job in page if job.pk not in reasons]
    drop_needs(moved, using)
    transitions.run_now(moved, now, using)
    queues = {job.queue for job in moved}
    for instance in {queue.instance for queue in queues}:
        ids = {queue.pk for queue in queues if queue.instance == instance}
        engine_for(using).wake_workers(instance, ids)
    return reasons
