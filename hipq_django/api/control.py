"""What projects and operators do to existing jobs: cancel, run now, reschedule, reprioritize."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import QuerySet

from hipq_django import transitions
from hipq_django.answers.cancelling import cancel_locked
from hipq_django.api.pages import PAGE_SIZE, cut, in_pages
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.dependencies.following import drop_needs
from hipq_django.domain.states import WAITING, State
from hipq_django.domain.validation import aware_moment, checked_priority, checked_reason
from hipq_django.engines import engine_for
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Job
from hipq_django.models.naming import Keyed, job_of, pruned, twin, verb


@verb
def cancel(
    job: Job | Keyed,
    reason: str = "",
    *,
    descendants: bool = False,
    instance: str = DEFAULT,
    shard_key: str | None = None,
) -> Job:
    """Make a live job final with the outcome cancelled; bring `job` up to date and return it.

    A handler that is executing it is not stopped, but what it returns is dropped. `reason` becomes
    its error. With `descendants`, all live jobs that it has enqueued while it ran, and those that
    they have, are cancelled too, and a final job is left as it is; without, raise
    `InvalidJobError` for a final job.
    """
    found = job_of(job, instance)
    said = checked_reason(reason) or "Cancelled"
    with write_transaction(found.using):
        read_row(found, locked(Job.objects.using(found.using).row_of(found)))
        if not found.is_final:
            cancel_locked([found], said, found.using)
        elif not descendants:
            raise InvalidJobError(
                f"{found} is final ({found.outcome}), so there is nothing to cancel; "
                "to cancel what it has enqueued, cancel it with its descendants."
            )
    if descendants:
        _cancel_descendants(found, said)
    return found


def _cancel_descendants(job: Job, reason: str) -> None:
    """Cancel the live jobs below a job, level by level."""
    using, parents = job.using, [job.pk]
    while parents:
        children = Job.objects.using(using).filter(parent__in=parents[:PAGE_SIZE])
        states = dict(children.values_list("pk", "state"))
        live = [pk for pk, state in states.items() if state != State.FINAL]
        in_pages(cut(live), partial(cancel_page, reason), using)
        parents = [*parents[PAGE_SIZE:], *states]


def cancel_page(reason: str, page: Sequence[Job], using: str) -> dict[int, str]:
    """Cancel the live jobs of a page; return why the others were skipped, by their ids."""
    reasons = {job.pk: f"it is final ({job.outcome})" for job in page if job.is_final}
    cancel_locked([job for job in page if job.pk not in reasons], reason, using)
    return reasons


@verb
def reschedule(
    job: Job | Keyed, at: datetime, *, instance: str = DEFAULT, shard_key: str | None = None
) -> Job:
    """Give a waiting job another time, an aware datetime; bring `job` up to date and return it.

    If the time is outside the job's time windows, the next time inside them is used. Raise
    `InvalidJobError` unless the job is waiting.
    """
    moment = aware_moment("at", at)
    found = job_of(job, instance)
    return _edit(found, {"scheduled_run_time": moment})


@verb
def reprioritize(
    job: Job | Keyed, priority: int, *, instance: str = DEFAULT, shard_key: str | None = None
) -> Job:
    """Give a waiting job another priority, lower is sooner; bring `job` up to date and return it.

    Raise `InvalidJobError` unless the job is waiting.
    """
    values = {"priority": checked_priority(priority)}
    return _edit(job_of(job, instance), values)


def _edit(job: Job, values: dict[str, Any]) -> Job:
    with write_transaction(job.using):
        _lock_waiting(job)
        now = clock.now(job.using)
        transitions.edit(job, values, now)
        if job.scheduled_run_time <= now:
            engine_for(job.using).wake_workers(job.queue.instance, [job.queue_id])
    return job


def _lock_waiting(job: Job) -> None:
    """Lock the row of a waiting job and bring the given copy up to date."""
    read_row(job, locked(Job.objects.using(job.using).row_of(job)))
    if job.is_final:
        raise InvalidJobError(f"{job} is final ({job.outcome}); use requeue to run it once more.")
    if job.state not in WAITING:
        raise InvalidJobError(
            f"{job} is {job.state}; this is for waiting jobs, in initial or retry."
        )


@verb
def run_now(job: Job | Keyed, *, instance: str = DEFAULT, shard_key: str | None = None) -> Job:
    """Let a waiting job run as soon as the limit, throttlers and pause of its queue allow.

    Its time windows are dropped, and so is what it waits for. Raise `InvalidJobError` unless it is
    waiting.
    """
    found = job_of(job, instance)
    with write_transaction(found.using):
        _lock_waiting(found)
        drop_needs([found], found.using)
        transitions.run_now([found], clock.now(found.using), found.using)
        engine_for(found.using).wake_workers(found.queue.instance, [found.queue_id])
    return found


acancel = twin(cancel)
arun_now = twin(run_now)
areschedule = twin(reschedule)
areprioritize = twin(reprioritize)


def read_row(job: Job, rows: QuerySet[Job]) -> None:
    """Bring a copy of a job up to date; raise `InvalidJobError` if `rows`, its row, is empty."""
    row = rows.first()
    if row is None:
        raise pruned(job)
    for field in Job._meta.concrete_fields:
        setattr(job, field.attname, getattr(row, field.attname))
