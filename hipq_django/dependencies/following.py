"""New jobs that wait for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from itertools import chain
from threading import get_ident
from typing import Any, NamedTuple

from django.db import transaction

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.locks import locked
from hipq_django.dependencies.needs import links_of, needs_of_jobs
from hipq_django.dependencies.unholding import any_links, unhold_or_cancel
from hipq_django.domain.dependencies import FOLLOWED, MAX_AFTER, ON, Need, verdict
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.states import State
from hipq_django.domain.validation import is_id
from hipq_django.exceptions import DuplicateJobKeyError, InvalidJobError, nearest_name
from hipq_django.job_types.current import current_job
from hipq_django.models import Batch, Job, Link


class Following(NamedTuple):
    """The jobs that a new one comes after."""

    ids: Sequence[int]
    on: str
    is_held: bool
    """Whether one of them has not ended yet."""


def following(wanted: Sequence[NewJob], instance: str, using: str) -> list[Following | None]:
    """Return what new jobs follow, each None if it follows nothing; all are looked up at once.

    Raise `InvalidJobError` if one could never begin.
    """
    named = [(new, _checked_on(new), _checked_after(new)) for new in wanted]
    known = dict(chain.from_iterable(ids.items() for _, _, ids in named))
    found = needs_of_jobs(known, instance, using)
    for new, _, ids in named:
        if missing := [pk for pk in ids if pk not in found]:
            raise InvalidJobError(
                f"{new.job_type}: after names job {min(missing)}, which instance {instance!r} does "
                "not have: it was pruned or rolled back, never existed, or is of another instance."
            )
    return [_following(new, on, list(ids), found) if ids else None for new, on, ids in named]


def _following(new: NewJob, on: str, ids: Sequence[int], found: Mapping[int, Need]) -> Following:
    said = verdict(found[pk]._replace(on=on) for pk in ids)
    if said.problem:
        raise InvalidJobError(f"{new.job_type}: {said.problem}{FOLLOWED}; nothing was created.")
    return Following(ids, on, is_held=not said.may_go)


def _checked_on(new: NewJob) -> str:
    on = "succeeded" if new.on is None else new.on
    if on not in ON:
        near = nearest_name(str(on), ON)
        raise InvalidJobError(f"{new.job_type}: on={on!r:.100} is unknown{near}")
    if new.on is not None and new.after is None:
        raise InvalidJobError(f"{new.job_type}: on={on!r} without after; say after which jobs.")
    return on


def _checked_after(new: NewJob) -> dict[int, datetime | None]:
    """Return the ids of the jobs, each with when it was created, where that is known."""
    if new.after is None:
        return {}
    after: Any = new.after or ()
    # An iterator would be empty for the next job that is made with it, which then waits for none.
    if isinstance(after, Job | int | str | Iterator) or not isinstance(after, Iterable):
        raise InvalidJobError(
            f"{new.job_type}: after={after!r:.100}: give a list of jobs or of their ids."
        )
    ids = {_id_of(new, job): job.create_time if isinstance(job, Job) else None for job in after}
    if len(ids) > MAX_AFTER:
        raise InvalidJobError(
            f"{new.job_type}: after names {len(ids):,} jobs, and at most {MAX_AFTER:,} are taken; "
            "put them into a batch."
        )
    return ids


def _id_of(new: NewJob, job: object) -> int:
    pk = job.pk if isinstance(job, Job) else job
    if is_id(pk):
        return pk
    raise InvalidJobError(
        f"{new.job_type}: after names {job!r:.100}; give jobs that are enqueued, or their ids."
    )


def link(jobs: Iterable[tuple[Job, Following | None]], using: str) -> None:
    """Store what new jobs wait for; after the commit, look whether they can go on."""
    links: list[Link] = []
    held: list[int] = []
    for job, follows in jobs:
        if follows is None:
            continue
        links += [Link(job=job, needs_job_id=pk, on=follows.on) for pk in follows.ids]
        if follows.is_held:
            held.append(job.pk)
    store(links, held, using)


def store(links: Sequence[Link], held: Sequence[int], using: str) -> None:
    """Store links of new jobs; check those that are held once after the commit."""
    if not links:
        return
    Link.objects.using(using).bulk_create(links)
    any_links.note(using)
    if held:
        # Jobs that ended between the check and the commit did not see them.
        transaction.on_commit(lambda: unhold_or_cancel(held, using), using=using, robust=True)


def check_stand_ins(
    found: Sequence[tuple[Job, NewJob, Following | None]],
    using: str,
    batch: Batch | None,
) -> None:
    """Raise `DuplicateJobKeyError` unless jobs are in the batch, and follow what new ones would.

    Each has the place of the new one. Returned instead, it would let its caller wait for nothing.
    All are to be in `batch`, if it is given.
    """
    links = links_of({holder.pk for holder, _, follows in found if follows}, using)
    for holder, new, follows in found:
        place = batch or new.batch
        wanted_batch = place.pk if isinstance(place, Batch) else place
        if wanted_batch is not None and holder.batch_id != wanted_batch:
            raise _cannot_stand_in(holder, f"is no job of batch {wanted_batch}")
        on, wanted = (follows.on, follows.ids) if follows else ("", ())
        if missing := [pk for pk in wanted if (holder.pk, pk, on) not in links]:
            raise _cannot_stand_in(holder, f"does not follow job {missing[0]} with on={on!r}")


def _cannot_stand_in(holder: Job, said: str) -> DuplicateJobKeyError:
    return DuplicateJobKeyError(
        f"job type {holder.job_type.name!r}: job {holder.pk} has the key, or the arguments, of the "
        f"new job, but {said}, so it cannot be returned instead.",
        holder,
    )


def drop_needs(jobs: Sequence[Job], using: str) -> None:
    """Delete the links of locked jobs to those that they wait for."""
    held = [job.pk for job in jobs if job.hold_time is not None]
    if held:
        Link.objects.using(using).filter(job__in=held).delete()


# Batches


def find_batch(batch: Batch | int, instance: str, using: str) -> Batch:
    """Return the row of a batch, given itself or its id; raise `InvalidJobError` without one."""
    pk = batch.pk if isinstance(batch, Batch) else batch
    if isinstance(batch, Batch) and pk is None:
        raise InvalidJobError(
            "the batch is not created: that is done at the end of `async with "
            "hipq_django.abatch(…)`, unless the block raises; begin another one."
        )
    rows = Batch.objects.using(using).filter(instance=instance)
    rows = rows.filter(pk=pk) if is_id(pk) else rows.none()
    if isinstance(batch, Batch):  # SQLite gives the id of one that was rolled back to another one
        rows = rows.filter(create_time=batch.create_time)
    row = rows.first()
    if row is None:
        raise InvalidJobError(
            f"instance {instance!r} has no batch {pk!r:.100}; give a batch, or the id of one."
        )
    return row


in_block: ContextVar[tuple[Batch, ...]] = ContextVar("hipq_batches", default=())
"""The batches in whose `with` block this code is, so that an id of theirs is recognised."""


def key_of_batch(
    batch: Batch | int | None, config: InstanceSettings, shared: str | None = None
) -> str | None:
    """Return the shard key of a batch: that of its block, or of the member that adds to it."""
    if batch is None or shared is not None:
        return shared
    pk = batch.pk if isinstance(batch, Batch) else batch
    for known in in_block.get():
        if (known.pk, known.instance) == (pk, config.name):
            return known.shard_key
    mine = current_job() if config.is_sharded else None
    return mine.shard_key if mine is not None and mine.batch_id == pk else None


def _thread_of_block(batch: Batch | int, instance: str) -> int | None:
    """Return the thread whose `with` block creates this batch, if that has not ended."""
    pk = batch.pk if isinstance(batch, Batch) else batch
    own = [batch] if isinstance(batch, Batch) else []
    known = [*own, *(open_one for open_one in in_block.get() if open_one.pk == pk)]
    threads = (each.open_in for each in known if each.instance == instance)
    return next((thread for thread in threads if thread is not None), None)


def check_may_add(batch: Batch | int, instance: str, using: str) -> None:
    """Raise `InvalidJobError` unless the calling code may add jobs to a batch.

    The `with` block that creates the batch may, and its own jobs while they run: then the batch has
    not ended. The job is locked, so that this stays true until the commit.
    """
    thread = _thread_of_block(batch, instance)
    if thread == get_ident():
        return
    if thread is not None:
        raise InvalidJobError(
            "batch: its block is in another thread, and what this one enqueues would not be in its "
            "transaction; enqueue the jobs in the thread of the block."
        )
    if isinstance(batch, Batch) and batch.collected is not None:
        raise InvalidJobError(
            "batch: its jobs are enqueued at the end of `async with hipq_django.abatch(…)`; add "
            "this one with `await batch.aenqueue(task.new(…))`, without batch=."
        )
    row = find_batch(batch, instance, using)
    mine = current_job()
    if mine is None or mine.batch_id != row.pk:
        ended = not Job.objects.using(using).live().filter(batch=row).exists()
        said = "has ended" if ended else "takes members from its own jobs only"
        raise InvalidJobError(f"{row} {said}; begin another one.")
    running = Job.objects.using(using).filter(pk=mine.pk, attempt=mine.attempt, batch=row)
    if not locked(running.filter(state=State.RUNNING)).exists():
        raise InvalidJobError(f"{row} takes no more jobs from {mine}, whose attempt is over.")
