"""What a project or an operator does with schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from asgiref.sync import sync_to_async

from hipq_django.api.building import Builder, given_values
from hipq_django.api.keys import under_key
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.drafts import JOB_OPTIONS, NewJob
from hipq_django.domain.job_options import in_json
from hipq_django.domain.schedules import (
    MOST_AT_ONCE,
    Cron,
    Every,
    checked_schedule_name,
    spec_of,
    values_of,
)
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import aware_moment, checked_reason
from hipq_django.exceptions import (
    InvalidJobError,
    InvalidJobTypeError,
    InvalidScheduleError,
    ScheduleNotFoundError,
    nearest_name,
)
from hipq_django.job_types.registry import get_all_declared
from hipq_django.models import Job, Schedule, ScheduleRun
from hipq_django.models.catalog import get_job_type
from hipq_django.schedules.changing import change, create, next_time_of, pass_over
from hipq_django.schedules.firing import KIND, Made, live_jobs
from hipq_django.sharding.routing import in_first_shard

CLOCK_TOLERANCE = timedelta(seconds=1)
"""By how much the clock of who says "now" may be ahead of that of the database."""

_NOT_OF_SCHEDULES = ("scheduled_run_time", "delay", "after", "on", "batch")


@in_first_shard
def schedule(
    name: str, new: NewJob, spec: Cron | Every | str, *, instance: str = DEFAULT
) -> Schedule:
    """Let a job be made at each due time; create the schedule, or change the one with this name.

    `new` is what a task's `.new(…)` makes. A change of the times counts from now on; one of data or
    options alone leaves them as they are. Nothing is written if nothing changed. Raise
    `InvalidScheduleError` where it cannot be, also for a name that the code declares.
    """
    config = get_instance(instance)
    wanted = checked(name, new, instance) | values_of(spec_of(spec))
    with write_transaction(config.database):
        return under_key(_create_or_edit, name, wanted, instance)


@in_first_shard
def unschedule(name: str, *, instance: str = DEFAULT) -> None:
    """Delete a schedule and what is known of its runs; its jobs stay."""
    using = get_instance(instance).database
    with write_transaction(using):
        row = locked(_named(name, instance)).first()
        _check_not_in_code(name, instance, row, "pause it, or remove it from the code")
        (row or get_schedule(name, instance)).delete(using=using)


@in_first_shard
def pause_schedule(name: str, reason: str = "", *, instance: str = DEFAULT) -> Schedule:
    """Make no jobs until it is resumed; due times pass meanwhile.

    One that is paused already keeps its reason, unless another one is given.
    """
    said = checked_reason(reason)
    with write_transaction(get_instance(instance).database):
        row = _get(name, instance)
        if said or not row.paused:
            row.paused, row.pause_reason = True, said or NONE
            _save(row, "paused", "pause_reason")
    return row


@in_first_shard
def resume_schedule(name: str, *, instance: str = DEFAULT) -> Schedule:
    """Go on; due times that passed meanwhile are noted as missed, and not caught up."""
    using = get_instance(instance).database
    with write_transaction(using):
        row = _get(name, instance)
        if row.paused:
            now = clock.now(using)
            pass_over(row, now, "it was paused")
            row.paused, row.pause_reason, row.problem = False, NONE, NONE
            row.next_time = next_time_of(row, now)
            _save(row, "paused", "pause_reason", "problem", "next_time")
    return row


@in_first_shard
def run_schedule(name: str, *, instance: str = DEFAULT) -> Job:
    """Make a job of a schedule now, whatever its times are, also while it is paused; return it.

    Raise `InvalidJobError` where a live job of it stands in the way.
    """
    using = get_instance(instance).database
    with write_transaction(using):
        row = _get(name, instance)
        now = clock.now(using)
        made = _make(row, [now], KIND.MANUAL, now)
        if not made.jobs:
            raise InvalidJobError(
                f"run_schedule: schedule {name!r}: {made.runs[0].reason}; wait for its end, or "
                f"cancel it (overlap={row.overlap!r})."
            )
        [job] = made.jobs
    return job


@in_first_shard
def backfill(name: str, start: datetime, end: datetime, *, instance: str = DEFAULT) -> list[Job]:
    """Make the jobs of the due times from `start` until just before `end`, which are in the past.

    Those that were fired or backfilled already are skipped, and those whose unique job is there
    already are noted as skipped. They run one after the other, unless the schedule allows them to
    overlap. Raise `InvalidScheduleError`, with nothing made, for more than 1,000.
    """
    using = get_instance(instance).database
    now = clock.now(using)
    _check_past(name, start, end, now)
    end = min(end, now)
    with write_transaction(using):
        row = _get(name, instance)
        times = takewhile(lambda at: at < end, row.spec.due_from(start))
        due = list(islice(times, MOST_AT_ONCE + 1))
        if len(due) > MOST_AT_ONCE:
            raise InvalidScheduleError(
                f"backfill {name!r}: more than {MOST_AT_ONCE:,} due times from {start} to {end}; "
                "do it in parts."
            )
        left = _not_done(row, due)
        made = _make(row, left, KIND.BACKFILLED, now)
    return made.jobs


aschedule = sync_to_async(schedule)
aunschedule = sync_to_async(unschedule)
apause_schedule = sync_to_async(pause_schedule)
aresume_schedule = sync_to_async(resume_schedule)
arun_schedule = sync_to_async(run_schedule)
abackfill = sync_to_async(backfill)


# What the verbs share


def get_schedule(name: str, instance: str) -> Schedule:
    """Return a schedule; raise `ScheduleNotFoundError` where there is none with this name."""
    row: Schedule | None = _named(name, instance).first()
    if row is None:
        using = get_instance(instance).database
        names = Schedule.objects.using(using).filter(instance=instance)
        near = nearest_name(str(name), names.values_list("name", flat=True)[:1_000])
        raise ScheduleNotFoundError(
            f"instance {instance!r} has no schedule {name!r:.200}{near} A worker that starts, and "
            "in a test run_due_jobs, writes down those that the code declares."
        )
    return row


def _named(name: str, instance: str) -> Any:
    rows = Schedule.objects.using(get_instance(instance).database)
    return rows.filter(instance=instance, name=name).select_related("job_type__queue")


def _get(name: str, instance: str) -> Schedule:
    """Return the locked row."""
    return locked(_named(name, instance)).first() or get_schedule(name, instance)


def _save(row: Schedule, *fields: str) -> None:
    row.update_time = clock.now(row.using)
    row.save(using=row.using, update_fields=[*fields, "update_time"])


def _make(row: Schedule, due: Sequence[datetime], kind: ScheduleRun.Kind, now: datetime) -> Made:
    made = Made.of([row], kind, now)
    live = live_jobs([row], row.using).get(row.pk, [])
    made.add(row, due, live, in_turn=kind == KIND.BACKFILLED)
    made.write()
    return made


def _not_done(row: Schedule, due: Sequence[datetime]) -> list[datetime]:
    """Return the due times of which no job was made; raise where nobody knows it any more."""
    runs = row.runs.filter(kind__in=[KIND.FIRED, KIND.BACKFILLED])
    done = set(runs.filter(due_time__in=due).values_list("due_time", flat=True))
    left = [at for at in due if at not in done]
    pruned = runs.filter(kind=KIND.FIRED, until__isnull=False).first()
    if pruned and any(pruned.due_time <= at <= pruned.last_time for at in left):
        raise InvalidScheduleError(
            f"backfill {row.name!r}: its runs from {pruned.due_time} until {pruned.until} were "
            "pruned, so that nobody knows which due times had a job; begin after them, or end "
            "before, or enqueue the jobs yourself."
        )
    return left


def _check_past(name: str, start: datetime, end: datetime, now: datetime) -> None:
    try:
        aware_moment("start", start)
        aware_moment("end", end)
    except InvalidJobError as error:
        raise InvalidScheduleError(f"backfill {name!r}: {error}") from error
    if end < start or end > now + CLOCK_TOLERANCE:
        rule = "is before start" if end < start else "is in the future"
        raise InvalidScheduleError(
            f"backfill {name!r}: end {end} {rule} {start if end < start else ''}".rstrip() + "."
        )


def _check_not_in_code(name: str, instance: str, row: Schedule | None, way_out: str) -> None:
    if _is_in_code(name, instance) or (row and belongs_to_code(row)):
        raise InvalidScheduleError(f"schedule {name!r} is declared in code: {way_out}.")


def belongs_to_code(row: Schedule) -> bool:
    """Return whether the code of this process declares it, or that of a worker, as the row says.

    Of one that is retired no live worker has the code.
    """
    is_of_worker = row.is_declared and not row.retired
    return is_of_worker or _is_in_code(row.name, row.instance)


def _is_in_code(name: str, instance: str) -> bool:
    """Return whether the code of this process declares a schedule."""
    return any(name in declared.schedules for declared in get_all_declared(instance))


def checked(name: object, new: NewJob, instance: str) -> dict[str, Any]:
    """Return what is stored of the job; its values are checked as for an enqueue."""
    checked_schedule_name(name)
    given = {option: getattr(new, option) for option in JOB_OPTIONS}
    for option in _NOT_OF_SCHEDULES:
        if given.pop(option) is not None:
            raise InvalidScheduleError(
                f"schedule {name!r}: {option}= is not for jobs of schedules, whose times say when."
            )
    if given.pop("shard_key") is not None:
        raise InvalidScheduleError(
            f"schedule {name!r}: shard_key= is not for jobs of schedules, which are in shard 0."
        )
    where = f"schedule {name!r}"
    try:
        job = Builder(instance, get_job_type, verb=where).build(new)
    except (InvalidJobError, InvalidJobTypeError) as error:
        said = str(error).removeprefix(f"{where}: ")
        raise InvalidScheduleError(f"{where}: {said}") from error
    options = {
        option: value
        for option, value in in_json(given | given_values(new)).items()
        if value is not None
    }
    return {"job_type": job.job_type, "job_data": job.job_data, "options": options}


def _create_or_edit(name: str, wanted: Mapping[str, Any], instance: str) -> Schedule:
    """Raise `IntegrityError`, with nothing written, where another has just created it."""
    row: Schedule | None = locked(_named(name, instance)).first()
    _check_not_in_code(name, instance, row, "change its code")
    if row is None:
        using = get_instance(instance).database
        row = Schedule(instance=instance, name=name, **wanted)
        create(row, using, clock.now(using))
        return row
    _write(row, {**wanted, **_BY_HAND})
    return row


_BY_HAND: dict[str, Any] = {"declared": {}, "retired": False, "seen_time": None}
"""The values of a schedule that no code declares: `schedule` takes over one whose code is gone."""


def _write(row: Schedule, wanted: Mapping[str, Any]) -> None:
    """Write the values that differ."""
    changed = {n: v for n, v in wanted.items() if getattr(row, n) != v}
    if changed:
        row.save(using=row.using, update_fields=change(row, changed, clock.now(row.using)))


@in_first_shard
def override(name: str, spec: Cron | Every, *, instance: str) -> Schedule:
    """Give a schedule that the code declares other times, until `hipq_sync --reset`.

    For operators in the admin: developers change the code.
    """
    with write_transaction(get_instance(instance).database):
        row = _get(name, instance)
        _write(row, values_of(spec))
    return row
