"""`enqueue`, `enqueue_many` and `requeue`: jobs are created."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.db import IntegrityError, connections, transaction

from hipq_django.api.building import Builder, new_job
from hipq_django.api.control import cancel_locked, read_row
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.notify import wake_workers
from hipq_django.database.transactions import check_commits, write_transaction
from hipq_django.domain.drafts import JOB_OPTIONS, NewJob
from hipq_django.domain.states import NONE, State
from hipq_django.domain.windows import TimeWindow
from hipq_django.engines import engine_for
from hipq_django.engines.values import StaleJobTypeError
from hipq_django.exceptions import (
    DuplicateJobKeyError,
    InvalidJobError,
    UnknownOptionError,
    nearest_name,
)
from hipq_django.models import Job
from hipq_django.models.catalog import cached_job_type, get_job_type
from hipq_django.signals import job_enqueued, send_after_commit

ON_CONFLICT = ("raise", "return", "replace")
_TRIES = 5
_WAY_OUT = (
    "Use another key, or on_conflict='return' or 'replace' ('replace' waits for no running job)."
)

Result = TypeVar("Result")


class JobOptions(TypedDict, total=False):
    """The options of one job; what is not given comes from the job type."""

    job_key: str | None
    scheduled_run_time: datetime | None
    delay: float | timedelta | None
    priority: int | None
    throttle_factor: float | Decimal | None
    timeout: float | None
    time_windows: Sequence[str | TimeWindow] | None
    queue: str | None


def enqueue(
    job_type: str,
    job_data: Any = None,
    *,
    on_conflict: str = "raise",
    instance: str = DEFAULT,
    **options: Unpack[JobOptions],
) -> Job:
    """Create a job in the caller's transaction and return it.

    `job_data` is JSON. Options: `job_key` (unique among the live jobs of the type; the answer is
    matched by it), `scheduled_run_time` (aware datetime, now) or `delay` (seconds or a timedelta
    from now), `priority`, `throttle_factor`, `timeout` (seconds), `time_windows`, `queue`. While
    another live job has the key, `on_conflict` is "raise" (`DuplicateJobKeyError`), "return" (that
    job), or "replace" (it is cancelled and the new one takes its place; refused while it is
    running). Raise `InvalidJobError` for values that cannot be stored, with nothing changed.
    """
    _check_options(job_type, on_conflict, options)
    new = NewJob(job_type, {} if job_data is None else job_data, **options)
    builder = Builder(instance, cached_job_type)
    insert = _replace if on_conflict == "replace" else _insert
    while True:
        try:
            job = builder.build(new)
            insert(job, builder.using)
            break
        except StaleJobTypeError:
            builder = Builder(instance, get_job_type)
        except DuplicateJobKeyError as error:
            if on_conflict == "return":
                return error.job
            raise
    _announce([job], builder.using)
    return job


def enqueue_many(jobs: Iterable[NewJob], *, instance: str = DEFAULT) -> list[Job]:
    """Create many jobs, all or none, in few statements; return them in their order.

    Raise `DuplicateJobKeyError` if one of the keys is taken, by a live job or twice in `jobs`.
    """
    wanted = [_checked_new(new) for new in jobs]
    builder = Builder(instance, get_job_type)
    if all(new.job_key is None for new in wanted):
        with transaction.atomic(using=builder.using):
            builder.look_up(wanted)
            # Each job is built while the database reads the ones before.
            return _insert_many(map(builder.build, wanted), builder.using, len(wanted))
    with _collector_paused():
        rows = [builder.build(new) for new in wanted]
    _check_distinct(rows)
    insert = partial(_insert_many, count=len(rows), by_key=True)
    return under_key(insert, _check_all_free, rows, builder.using)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Collect no cyclic garbage meanwhile.

    New jobs hold none, and to look for it takes a quarter of the time of creating them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _insert_many(jobs: Iterable[Job], using: str, count: int, *, by_key: bool = False) -> list[Job]:
    with transaction.atomic(using=using):
        with _collector_paused():
            rows = engine_for(using).insert(jobs, count, by_key=by_key)
        _announce(rows, using)
    return rows


def _announce(jobs: Sequence[Job], using: str) -> None:
    """Once they are committed, tell receivers, and workers where a job may run at once."""
    send_after_commit(job_enqueued, jobs, using)
    due = {job.queue_id for job in jobs if job.scheduled_run_time <= job.create_time}
    if due:
        wake_workers(jobs[0].queue.instance, due, using)


aenqueue = sync_to_async(enqueue)
aenqueue_many = sync_to_async(enqueue_many)


def requeue(job: Job) -> Job:
    """Create a fresh job from a final one, with the same values; return it.

    Its `origin` is the old job, which stays as it is. Raise `InvalidJobError` for a job that is
    not final, `DuplicateJobKeyError` if its key is in use again.
    """
    check_commits(job.using)
    read_row(job, Job.objects.using(job.using), "requeue")
    if not job.is_final:
        raise InvalidJobError(
            f"requeue: {job} is {job.state}; only final jobs can be requeued. Use run_now for a "
            "waiting job."
        )
    fresh = _copy_of(job)
    _insert(fresh, fresh.using)
    _announce([fresh], fresh.using)
    return fresh


def _copy_of(job: Job) -> Job:
    names = ("job_data", "job_key", "timeout", "priority", "throttle_factor", "time_windows")
    values = {name: getattr(job, name) for name in names}
    fresh = new_job(job.queue, job.job_type, clock.now(job.using), **values)
    fresh.origin = job
    return fresh


arequeue = sync_to_async(requeue)


# Writing under the unique key


def under_key(write: Callable[..., Result], check_free: Callable[..., None], *given: Any) -> Result:
    """Return `write(*given)`; `check_free(*given)` raises if another job has its key."""
    for _ in range(_TRIES - 1):
        try:
            return write(*given)
        except IntegrityError:
            check_free(*given)
            # The job that had the key has become final since, and the key is free again.
    return write(*given)


def live_with_key(key: str, job: Job, using: str) -> Job | None:
    """Return the live job of the same type that has the key."""
    jobs = Job.objects.using(using).select_related("queue", "job_type")
    return jobs.live().filter(job_type=job.job_type_id, job_key=key).keyed().first()


def taken_by(holder: Job, way_out: str = _WAY_OUT, verb: str = "") -> DuplicateJobKeyError:
    """Return the error of who wants the key that another job has."""
    return DuplicateJobKeyError(
        f"{verb}job type {holder.job_type.name!r} has a live job with key {holder.job_key!r}: job "
        f"{holder.pk} is {holder.state}. {way_out}",
        holder,
    )


def _insert(job: Job, using: str) -> None:
    if job.job_key == NONE:
        engine_for(using).insert_one(job)
    else:
        under_key(_insert_keyed, _check_free, job, using)


def _insert_keyed(job: Job, using: str) -> None:
    """Insert; inside a transaction with a savepoint, so that a conflict leaves it usable."""
    with transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext():
        engine_for(using).insert_one(job)


def _check_free(job: Job, using: str) -> None:
    holder = live_with_key(job.job_key, job, using)
    if holder is not None:
        raise taken_by(holder) from None


def _check_all_free(rows: Sequence[Job], using: str) -> None:
    keyed = {(row.job_type_id, row.job_key) for row in rows if row.job_key != NONE}
    keys = [key for _, key in keyed]
    for start in range(0, len(keys), 300):
        live = Job.objects.using(using).live().filter(job_key__in=keys[start : start + 300])
        for job in live.select_related("queue", "job_type"):
            if (job.job_type_id, job.job_key) in keyed:
                raise taken_by(job) from None


def _replace(job: Job, using: str) -> None:
    """Insert the job in the place of the one that has its key, both or nothing.

    Raise `DuplicateJobKeyError` where that one is running and cannot be replaced.
    """
    with write_transaction(using):
        while True:
            try:
                _insert(job, using)
                return
            except DuplicateJobKeyError as error:
                if not _cancel_holder(error.job):
                    raise


def _cancel_holder(holder: Job) -> bool:
    """Cancel the job that has the key; return False while it is running."""
    row = locked(Job.objects.using(holder.using).filter(pk=holder.pk)).first()
    if row is None or row.is_final:
        return True
    if row.state == State.RUNNING:
        return False
    cancel_locked(row, "Replaced by a new job with the same key")
    return True


def _check_distinct(rows: Sequence[Job]) -> None:
    seen: dict[tuple[int, str], Job] = {}
    for row in rows:
        other = seen.setdefault((row.job_type_id, row.job_key), row)
        if other is not row and row.job_key != NONE:
            raise DuplicateJobKeyError(
                f"job type {row.job_type.name!r}: key {row.job_key!r} is given twice in one "
                "enqueue_many; nothing was created.",
                other,
            )


# Checking


def _check_options(job_type: object, on_conflict: object, options: JobOptions) -> None:
    where = f"enqueue {job_type!r:.200}"
    for name in options.keys() - set(JOB_OPTIONS):
        raise UnknownOptionError(where, name, (*JOB_OPTIONS, "on_conflict", "instance"))
    if on_conflict not in ON_CONFLICT:
        near = nearest_name(str(on_conflict), ON_CONFLICT)
        raise InvalidJobError(f"{where}: on_conflict {on_conflict!r} is unknown{near}")


def _checked_new(new: object) -> NewJob:
    if isinstance(new, NewJob):
        return new
    raise InvalidJobError(
        f"enqueue_many: an object of type {type(new).__name__} is not a NewJob; give "
        "NewJob(job_type, job_data, …)."
    )
