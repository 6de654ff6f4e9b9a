"""`chain` and `batch`: jobs that follow others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from threading import get_ident
from typing import Any, ParamSpec

from asgiref.sync import sync_to_async
from django.db import transaction

from hipq_django.api.building import Builder, stored_data
from hipq_django.api.control import cancel_page
from hipq_django.api.enqueueing import (
    announce_new,
    check_batches,
    create_following,
    create_many,
    create_member,
    in_former,
    together,
    with_keys,
)
from hipq_django.api.pages import PAGE_SIZE, in_pages
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.dependencies.following import Following, find_batch, following, in_block, store
from hipq_django.domain.drafts import NewJob, OnConflict
from hipq_django.domain.serialization import is_storable
from hipq_django.domain.sharding import checked_shard_key
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import checked_reason
from hipq_django.engines.rows import take_place_of
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Batch, Job, Link
from hipq_django.models.batch import MAX_BATCH_NAME_CHARS
from hipq_django.models.catalog import get_job_type
from hipq_django.sharding import routing

P = ParamSpec("P")


def chain(*jobs: NewJob, shard_key: str | None = None, instance: str = DEFAULT) -> list[Job]:
    """Enqueue jobs of which each follows the one before; return them in their order.

    All or none are created. Each starts once the one before has succeeded; if that one ends
    otherwise, all that follow are cancelled. `shard_key` is that of all that name none. Raise
    `ShardError` if they belong to different shards.
    """
    builder = Builder(instance, get_job_type, verb="chain")
    for new in jobs[1:]:
        if new.after is not None or new.on is not None:
            raise InvalidJobError(
                f"chain: {new.job_type} has after= or on= of its own; only the first job of a "
                "chain may."
            )
    keyed = with_keys(jobs, builder, shard_key)
    with together(keyed, builder) as there:
        in_former(keyed, "raise", there, there.using)
        return _enqueue_chain(keyed, there)


achain = sync_to_async(chain)


def _enqueue_chain(jobs: Sequence[NewJob], builder: Builder) -> list[Job]:
    instance = builder.instance
    with transaction.atomic(using=builder.using):
        check_batches(jobs, builder)
        first = following(jobs[:1], instance, builder.using)
        later = [Following([], "succeeded", is_held=True) for _ in jobs[1:]]
        rows = create_following(list(zip(jobs, [*first, *later], strict=True)), builder)
        links = [Link(job=job, needs_job=before) for before, job in pairwise(rows)]
        store(links, [job.pk for job in rows[1:2]], builder.using)
        announce_new(rows, builder.using)
    return rows


@contextmanager
def batch(
    name: str = "",
    *,
    then: NewJob | None = None,
    always: NewJob | None = None,
    shard_key: str | None = None,
    instance: str = DEFAULT,
) -> Iterator[Batch]:
    """Open a transaction to enqueue jobs that belong together; yield their batch.

    Enqueue them with `batch.enqueue` and `batch.enqueue_many`, or with `batch=batch`. `then` starts
    once all have succeeded, `always` once all have ended, with any outcome; without jobs both start
    at once. `shard_key` is that of all jobs that name none. If the block raises, nothing is
    created.
    """
    using = _place_of(name, shard_key, instance)
    _check_callbacks(then, always)
    with transaction.atomic(using=using):
        made = Batch(instance=instance, name=_checked_name(name), create_time=clock.now(using))
        made.save(using=using, force_insert=True)
        made.shard_key = shard_key
        made.open_in = get_ident()
        in_block.set((*in_block.get(), made))
        try:
            yield made
        finally:
            made.open_in = None
            in_block.set(tuple(each for each in in_block.get() if each is not made))
        _add_callbacks(made, [(then, "succeeded"), (always, "final")], using)


def _place_of(name: str, shard_key: str | None, instance: str) -> str:
    """Return the database of a new batch; raise `InvalidJobError` for what is no shard key."""
    if shard_key is not None:
        checked_shard_key(f"batch {name!r:.100}", shard_key)
    builder = Builder(instance, get_job_type, verb="batch")
    return builder.routes.place_batch(shard_key) if builder.config.is_sharded else builder.using


@asynccontextmanager
async def abatch(
    name: str = "",
    *,
    then: NewJob | None = None,
    always: NewJob | None = None,
    shard_key: str | None = None,
    instance: str = DEFAULT,
) -> AsyncIterator[Batch]:
    """Do the same in async code, with `await batch.aenqueue(…)` and `await batch.aenqueue_many(…)`.

    The jobs are collected, and enqueued at the end of the block.
    """
    _check_callbacks(then, always)
    made = Batch(instance=instance, name=_checked_name(name))
    collected: list[Callable[[Batch], object]] = []
    made.collected = collected
    try:
        yield made
    finally:
        made.collected = None  # nothing that is added from now on would be enqueued

    def enqueue_all() -> None:
        with batch(name, then=then, always=always, shard_key=shard_key, instance=instance) as real:
            for enqueue in collected:
                enqueue(real)
        take_place_of(made, real)
        made.create_time = real.create_time

    await sync_to_async(enqueue_all)()


def add(made: Batch, new: NewJob, on_conflict: OnConflict | None) -> Job:
    """Enqueue a job of a batch; see `Batch.enqueue`."""
    return create_member(new, on_conflict, made)


def add_many(made: Batch, jobs: Iterable[NewJob], on_conflict: OnConflict) -> list[Job]:
    """Enqueue jobs of a batch; see `Batch.enqueue_many`."""
    builder = Builder(made.instance, get_job_type, verb="batch.enqueue_many", batch=made)
    return create_many(jobs, on_conflict, builder)


def as_given(new: NewJob) -> NewJob:
    """Return a copy of a job, which is the same however its caller changes what it has given.

    Raise `InvalidJobError` where its data could never be stored.
    """
    copies: dict[str, Any] = {"job_data": stored_data(new)}
    for name in ("after", "time_windows"):
        if isinstance(value := getattr(new, name), list):
            copies[name] = [*value]
    return replace(new, **copies)


def cancel_batch(batch: Batch | int, reason: str = "", *, instance: str = DEFAULT) -> int:
    """Cancel the live jobs of a batch, and `then`; return the number of cancelled jobs.

    `always` still runs. Each page of jobs is a separate transaction. Raise `InvalidJobError` if
    there is no such batch.
    """
    place = batch.instance if isinstance(batch, Batch) else instance
    using = routing.of_id(place, batch.pk if isinstance(batch, Batch) else batch)
    row = find_batch(batch, place, using)
    said = checked_reason(reason) or f"{row} was cancelled"
    cancelled = 0
    jobs = Job.objects.using(using)
    for rows in (jobs.then_of(row), jobs.live().filter(batch=row)):
        while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:PAGE_SIZE]):
            cancelled += in_pages([ids], partial(cancel_page, said), using).done
    return cancelled


acancel_batch = sync_to_async(cancel_batch)


def _check_callbacks(*callbacks: NewJob | None) -> None:
    """Refuse what could not follow the batch, before its jobs are made."""
    for new in callbacks:
        if new is None:
            continue
        if new.batch is not None or new.after is not None or new.on is not None:
            raise InvalidJobError(
                f"batch: {new.job_type}, which follows the batch, has after=, on= or batch= of its "
                "own; leave them out."
            )


def _add_callbacks(made: Batch, callbacks: Iterable[tuple[NewJob | None, str]], using: str) -> None:
    # Whether there are any: those that have ended already may have failed.
    is_held = Job.objects.using(using).filter(batch=made).exists()
    builder = Builder(made.instance, get_job_type, verb="batch")
    for new, on in callbacks:
        if new is None:
            continue
        [keyed] = with_keys([new], builder, made.shard_key)
        with together([keyed], builder, batch=made) as there:
            in_former([keyed], "raise", there, there.using)
            [job] = create_following([(keyed, Following([], on, is_held=is_held))], there)
        store([Link(job=job, needs_batch=made, on=on)], [job.pk] if is_held else [], using)
        announce_new([job], using)


def _checked_name(name: object) -> str:
    if isinstance(name, str) and len(name) <= MAX_BATCH_NAME_CHARS and is_storable(name):
        return str.__str__(name) or NONE
    raise InvalidJobError(
        f"batch name {name!r:.100}: give text of at most {MAX_BATCH_NAME_CHARS} characters."
    )
