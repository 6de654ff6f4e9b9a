"""`enqueue` and `enqueue_many`: jobs are created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Unpack, get_args

from asgiref.sync import sync_to_async
from django.db import IntegrityError, transaction

from hipq_django.answers.cancelling import cancel_locked
from hipq_django.api.building import Builder
from hipq_django.api.keys import (
    check_distinct,
    have_not_started,
    holder_of,
    holders,
    taken,
)
from hipq_django.conf.instances import on_shard
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.dependencies.following import (
    Following,
    check_may_add,
    check_stand_ins,
    following,
    in_block,
    key_of_batch,
    link,
)
from hipq_django.domain.drafts import JOB_OPTIONS, JobOptions, NewJob, OnConflict
from hipq_django.domain.serialization import error_of
from hipq_django.domain.states import NONE, State
from hipq_django.engines import engine_for
from hipq_django.engines.rows import collector_paused, queue_of, queues_with_due
from hipq_django.engines.values import StaleJobTypeError
from hipq_django.exceptions import (
    DuplicateJobKeyError,
    InvalidJobError,
    ShardsError,
    UnknownOptionError,
    nearest_name,
)
from hipq_django.models import Batch, Job
from hipq_django.models.catalog import cached_job_type, get_job_type
from hipq_django.sharding.routing import SAME_KEY, with_shard_key
from hipq_django.signals import job_enqueued, send_after_commit

ON_CONFLICT = get_args(OnConflict)


def enqueue(
    job_type: str,
    job_data: Any = None,
    *,
    on_conflict: OnConflict | None = None,
    instance: str = DEFAULT,
    **options: Unpack[JobOptions],
) -> Job:
    """Create a job in the caller's transaction and return it.

    `job_data` is JSON. Options: `job_key` (unique among the live jobs of the type; answers find the
    job by it), `scheduled_run_time` (aware datetime, now) or `delay` (seconds or a timedelta from
    now), `priority`, `throttle_factor`, `timeout` (seconds), `time_windows`, `queue`, `after` and
    `on` (jobs that end first), `batch`, `unique_key`, `shard_key` (says in which shard it is).
    While another live job has the `job_key`, `on_conflict` is "raise" (`DuplicateJobKeyError`),
    "return" (that job; so by default for a type whose jobs are unique), or "replace" (it is
    cancelled and the new one takes its place; refused while it is running). Raise `InvalidJobError`
    for values that cannot be stored, and `ShardError` for jobs that belong together and are in
    different shards, with nothing changed.
    """
    for name in options:
        if name not in JOB_OPTIONS:
            known = (*JOB_OPTIONS, "on_conflict", "instance")
            raise UnknownOptionError(f"enqueue {job_type!r:.200}", name, known)
    new = NewJob(job_type, {} if job_data is None else job_data, **options)
    return enqueue_new(new, on_conflict=on_conflict, instance=instance)


def enqueue_new(
    new: NewJob, *, on_conflict: OnConflict | None = None, instance: str = DEFAULT
) -> Job:
    """Do the same for a job that was made by `new`."""
    check_on_conflict(new.job_type, on_conflict)
    builder = Builder(instance, cached_job_type)
    if builder.config.is_routed or new.batch is not None:
        return _enqueue_placed(new, on_conflict, builder)
    return _enqueue_built(new, on_conflict, builder)


FEW = 2
"""So many jobs go in one by one: that takes one statement each, many together take six."""


def enqueue_unchecked(
    jobs: Sequence[NewJob], *, on_conflict: OnConflict = "raise", instance: str
) -> list[Job]:
    """Create jobs of types whose names were checked when they were stored.

    This process need not declare them: with STRICT, too, their jobs wait for a worker that does.
    """
    if len(jobs) > FEW:
        return _enqueue_many(jobs, on_conflict, Builder(instance, get_job_type, verb=None))
    return [
        _enqueue_built(new, on_conflict, Builder(instance, cached_job_type, verb=None))
        for new in jobs
    ]


def _enqueue_placed(new: NewJob, on_conflict: OnConflict | None, builder: Builder) -> Job:
    """Enqueue a job in the shard where it belongs."""
    config = builder.config
    [new] = with_keys([new], builder)
    if not config.is_sharded:
        return _enqueue_built(new, on_conflict, builder)
    place = builder.routes.place(new, builder.batch)
    if stand_ins := in_former([new], on_conflict, builder, place):
        return stand_ins[0]
    with on_shard(config.name, place):
        return _enqueue_built(new, on_conflict, builder.in_shard(place))


def with_keys(jobs: Iterable[NewJob], builder: Builder, shared: str | None = None) -> list[NewJob]:
    """Return jobs with their shard keys: their own, `shared`, of their batch, or of SHARD_KEY."""
    config = builder.config
    if not (config.is_routed or shared is not None or in_block.get()):
        return list(jobs)
    return [
        with_shard_key(new, config, key_of_batch(builder.batch or new.batch, config, shared))
        for new in jobs
    ]


@contextmanager
def together(
    jobs: Iterable[NewJob], builder: Builder, way_out: str = SAME_KEY, *, batch: Batch | None = None
) -> Iterator[Builder]:
    """Yield the builder on the shard where all of the jobs are, with a batch if it is given.

    Raise `ShardError` if they belong to several.
    """
    config = builder.config
    if not config.is_sharded:
        yield builder
        return
    place = builder.routes.place_together(jobs, builder.verb or "", way_out, batch or builder.batch)
    with on_shard(config.name, place):
        yield builder.in_shard(place)


def in_former(
    jobs: Sequence[NewJob], on_conflict: OnConflict | None, builder: Builder, place: str
) -> dict[int, Job]:
    """Return the jobs that stand for new ones of a shard, where the keys of these were before.

    Only until all shards are settled; each by the place of its new job. With "replace" such a job
    is cancelled. Raise `DuplicateJobKeyError` as in the shard itself.
    """
    found: dict[int, Job] = {}
    for alias, places in builder.routes.former(jobs).items():
        if alias == place:  # they are beside what they belong to
            continue
        with on_shard(builder.instance, alias):
            there = builder.with_lookup(get_job_type)
            for number in places:
                if job := _stand_in(jobs[number], on_conflict, there):
                    found[number] = job
    return found


def _stand_in(new: NewJob, on_conflict: OnConflict | None, builder: Builder) -> Job | None:
    job, using = builder.build(new), builder.using
    belongs = builder.batch is not None or _has_links(new)  # to jobs beside which that one is not
    while holder := holder_of(job, holders([job], using)):
        wanted = on_conflict or builder.on_conflict(new.job_type)
        if wanted == "return" and not belongs:
            if have_not_started([holder], using):
                holder.conflict = True
                return holder
        elif wanted != "replace" or not _replaced(job, holder):
            raise taken(job, holder, builder.verb)
    return None


def _replaced(job: Job, holder: Job) -> bool:
    _check_may_replace(job)
    with write_transaction(holder.using):
        return _cancel_holder(job, holder)


def _enqueue_built(new: NewJob, on_conflict: OnConflict | None, builder: Builder) -> Job:
    if builder.batch is None and not _has_links(new):
        return _store(new, None, on_conflict, builder)
    with transaction.atomic(using=builder.using):
        check_batches([new], builder)
        [follows] = following([new], builder.instance, builder.using)
        return _store(new, follows, on_conflict, builder)


def _store(
    new: NewJob, follows: Following | None, on_conflict: OnConflict | None, builder: Builder
) -> Job:
    """Store a job and announce it; or return the job that has its place."""
    using = builder.using
    while True:
        try:
            job = builder.build(new, held=bool(follows and follows.is_held))
            _write(job, on_conflict, using)
        except StaleJobTypeError:
            builder = builder.with_lookup(get_job_type)
            continue
        except DuplicateJobKeyError as error:
            if (on_conflict or builder.on_conflict(new.job_type)) != "return":
                raise
            if have_not_started([error.job], using):
                error.job.conflict = True
                check_stand_ins([(error.job, new, follows)], using, builder.batch)
                return error.job
            continue
        link([(job, follows)], using)
        announce_new([job], using)
        return job


def _has_links(new: NewJob) -> bool:
    """Return whether a new job waits for others, or belongs to them."""
    return not (new.after is None and new.on is None and new.batch is None)


def check_batches(jobs: Iterable[NewJob], builder: Builder) -> None:
    """Raise `InvalidJobError` where a batch does not take new jobs; most are in the same one."""
    checked: set[int] = set()
    for batch in [builder.batch] if builder.batch else [new.batch for new in jobs]:
        if batch is None or (key := batch if isinstance(batch, int) else id(batch)) in checked:
            continue
        check_may_add(batch, builder.instance, builder.using)
        checked.add(key)


def enqueue_many(
    jobs: Iterable[NewJob],
    *,
    on_conflict: OnConflict = "raise",
    per_shard: bool = False,
    instance: str = DEFAULT,
) -> list[Job]:
    """Create many jobs, all or none, in few statements; return them in their order.

    Raise `DuplicateJobKeyError` if one of the keys is taken, by another job or twice in `jobs`; or
    with `on_conflict="return"` give back the job that has it. "replace" is for single jobs. Raise
    `ShardError` if they belong to several shards; with `per_shard` there is a transaction for each
    of these, and `ShardsError` is raised if one of them fails.
    """
    builder = Builder(instance, get_job_type, verb="enqueue_many")
    if per_shard and builder.config.is_sharded:
        return _create_per_shard(jobs, on_conflict, builder)
    return create_many(jobs, on_conflict, builder, IN_PARTS)


IN_PARTS = "give per_shard=True to enqueue them in a transaction for each."


def create_many(
    jobs: Iterable[NewJob],
    on_conflict: OnConflict,
    builder: Builder,
    way_out: str = SAME_KEY,
    *,
    beside: Job | None = None,
) -> list[Job]:
    """Do the same in one shard, that of a job if it is given, for a verb of the builder."""
    _check_for_many(on_conflict, builder)
    wanted = with_keys(jobs, builder)
    placed = [replace(new, after=[beside]) for new in wanted] if beside else wanted
    with together(placed, builder, way_out) as there:
        return _create_in_shard(wanted, on_conflict, there)


def _create_in_shard(
    wanted: Sequence[NewJob], on_conflict: OnConflict, builder: Builder
) -> list[Job]:
    """Create those of the jobs for which no other stands where their keys were before."""
    if not builder.config.is_sharded:
        return _enqueue_many(wanted, on_conflict, builder)
    found = in_former(wanted, on_conflict, builder, builder.using)
    left = [new for place, new in enumerate(wanted) if place not in found]
    made = iter(_enqueue_many(left, on_conflict, builder))
    return [found.get(place) or next(made) for place in range(len(wanted))]


def _create_per_shard(
    jobs: Iterable[NewJob], on_conflict: OnConflict, builder: Builder
) -> list[Job]:
    """Try each shard, though others have failed."""
    _check_for_many(on_conflict, builder)
    wanted = with_keys(jobs, builder)
    made: dict[int, Job] = {}
    enqueued: dict[str, list[Job]] = {}
    failed: dict[str, Exception] = {}
    for alias, places in builder.routes.place_apart(wanted).items():
        try:
            with on_shard(builder.instance, alias):
                there = builder.with_lookup(get_job_type)
                part = [wanted[place] for place in places]
                enqueued[alias] = _create_in_shard(part, on_conflict, there)
            made |= zip(places, enqueued[alias], strict=True)
        except Exception as error:  # whatever it is, the others are in databases of their own
            failed[alias] = error
    if failed:
        alias, first = next(iter(failed.items()))
        raise ShardsError(
            f"enqueue_many: the jobs of {', '.join(failed)} are not enqueued, those of "
            f"{', '.join(enqueued) or 'no other shard'} are; {alias}: {error_of(first)}",
            enqueued,
            failed,
        ) from first
    return [made[place] for place in range(len(wanted))]


def create_member(new: NewJob, on_conflict: OnConflict | None, batch: Batch) -> Job:
    """Enqueue a job of a batch, whatever batch it names."""
    check_on_conflict(new.job_type, on_conflict, "batch.enqueue")
    builder = Builder(batch.instance, cached_job_type, verb="batch.enqueue", batch=batch)
    return _enqueue_placed(new, on_conflict, builder)


def _enqueue_many(wanted: Sequence[NewJob], on_conflict: OnConflict, builder: Builder) -> list[Job]:
    with transaction.atomic(using=builder.using):
        builder.look_up(wanted)
        check_batches(wanted, builder)
        if not builder.has_unique and all(map(_is_plain, wanted)):
            # Each job is built while the database reads the ones before.
            new, extra = map(builder.build, wanted), builder.has_extra
            with collector_paused():
                made = engine_for(builder.using).insert(new, len(wanted), by_key=False, extra=extra)
            announce_new(made, builder.using)
            return made
        follows = following(wanted, builder.instance, builder.using)
        made = create_following(list(zip(wanted, follows, strict=True)), builder, on_conflict)
        announce_new([job for job in dict.fromkeys(made) if not job.conflict], builder.using)
    return made


def _is_plain(new: NewJob) -> bool:
    return new.job_key is None and new.after is None and new.on is None


def create_following(
    wanted: Sequence[tuple[NewJob, Following | None]],
    builder: Builder,
    on_conflict: OnConflict = "raise",
) -> list[Job]:
    """Create jobs in the current transaction, with links to what they come after.

    The caller announces them, once all their links are stored.
    """
    with collector_paused():
        rows = [
            builder.build(new, held=bool(follows and follows.is_held)) for new, follows in wanted
        ]
    if on_conflict == "return":
        jobs = insert_or_find(rows, builder.using, hold=True)
    else:
        check_distinct(rows, builder.verb)
        jobs = insert_all(rows, builder.using, builder.verb, extra=builder.has_extra)
    made = [(job, wanted[i][1]) for i, job in enumerate(jobs) if job is rows[i]]
    link(made, builder.using)
    found = [(job, *wanted[i]) for i, job in enumerate(jobs) if job is not rows[i]]
    check_stand_ins(found, builder.using, builder.batch)
    return jobs


def insert_or_find(rows: Sequence[Job], using: str, *, hold: bool = False) -> list[Job]:
    """Insert the jobs whose keys are free; return them, and the holders of the other keys.

    The INSERT decides. If a holder has given up its key before it is read, all jobs are inserted
    anew, always in the order of their keys, so that two calls with the same keys never wait for
    each other. With `hold`, no holder that waits starts before the transaction ends.
    """
    while True:
        with transaction.atomic(using=using), collector_paused():
            engine_for(using).insert_free(rows)
            own = {row.id: row for row in rows}
            left = holders([row for row in rows if row.id is None], using)
            found = [row if row.id else holder_of(row, left) for row in rows]
            others = {job for job in found if job and job.id not in own}
            if None not in found and (not hold or have_not_started(others, using)):
                for job in others:
                    job.conflict = True
                return [own.get(job.id, job) for job in found if job]
            transaction.set_rollback(True, using)


def insert_all(
    rows: Sequence[Job], using: str, verb: str | None, *, extra: bool = True
) -> list[Job]:
    """Insert all jobs, or none: raise `DuplicateJobKeyError` if another job has one of the keys."""
    with transaction.atomic(using=using):
        try:
            with transaction.atomic(using=using), collector_paused():
                return engine_for(using).insert(rows, len(rows), by_key=True, extra=extra)
        except IntegrityError:
            for row, job in zip(rows, insert_or_find(rows, using), strict=True):
                if job is not row:
                    raise taken(row, job, verb) from None
        return [*rows]


def announce_new(jobs: Sequence[Job], using: str) -> None:
    """After the commit, send the signals, and wake the workers if a job may run at once."""
    if not jobs:
        return
    send_after_commit(job_enqueued, jobs, using)
    if due := queues_with_due(jobs):
        engine_for(using).wake_workers(queue_of(jobs[0]).instance, due)
    for watch in _watching:
        watch(jobs)


_watching: list[Callable[[Sequence[Job]], None]] = []


@contextmanager
def watched(watch: Callable[[Sequence[Job]], None]) -> Iterator[None]:
    """In the block, call a function with new jobs before their enqueue returns; for tests."""
    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)


aenqueue = sync_to_async(enqueue)
aenqueue_many = sync_to_async(enqueue_many)


def _write(job: Job, on_conflict: OnConflict | None, using: str) -> None:
    if on_conflict == "replace":
        _replace(job, using)
    else:
        _insert(job, using)


def _insert(job: Job, using: str) -> None:
    """Insert a job; raise `DuplicateJobKeyError` if another has its key.

    Or `StaleJobTypeError` if that one has given it up meanwhile, or the job type has changed.
    """
    if not engine_for(using).insert_one(job):
        if holder := holder_of(job, holders([job], using)):
            raise taken(job, holder, "enqueue")
        raise StaleJobTypeError


def _replace(job: Job, using: str) -> None:
    """Cancel the job that has the key and insert this one, both or neither.

    Raise `DuplicateJobKeyError` if that job is running and cannot be replaced.
    """
    _check_may_replace(job)
    with write_transaction(using):
        while True:
            try:
                _insert(job, using)
                return
            except DuplicateJobKeyError as error:
                if not _cancel_holder(job, error.job):
                    raise


def _check_may_replace(job: Job) -> None:
    if job.kept_key is not None:
        raise InvalidJobError(
            f"enqueue {job.job_type.name!r}: on_conflict='replace' is not for unique='kept': the "
            "existing job is kept, even when it has ended. Use 'return' or 'raise'."
        )


def _cancel_holder(job: Job, holder: Job) -> bool:
    """Cancel the job that is in the way; return False if it stays there while it is running.

    That is so if it has the new job's key. One that only kept others from waiting beside it, and is
    running by now, is not in the way any more.
    """
    row = locked(Job.objects.using(holder.using).filter(pk=holder.pk)).first()
    if row is None or row.is_final:
        return True
    if row.state == State.RUNNING:
        return not NONE != job.job_key == holder.job_key
    cancel_locked([row], "Replaced by a new job with the same key", row.using)
    return True


# Checking


def _check_for_many(on_conflict: object, builder: Builder) -> None:
    if on_conflict not in {"raise", "return"}:
        raise InvalidJobError(
            f"{builder.verb}: on_conflict={on_conflict!r:.100}; give 'raise' or 'return'."
        )


def check_on_conflict(job_type: str, on_conflict: object, verb: str = "enqueue") -> None:
    """Refuse what is not to be done on a conflict; None is what the job type says."""
    if on_conflict is not None and on_conflict not in ON_CONFLICT:
        near = nearest_name(str(on_conflict), ON_CONFLICT)
        raise InvalidJobError(
            f"{verb} {job_type!r:.200}: on_conflict {on_conflict!r} is unknown{near}"
        )
