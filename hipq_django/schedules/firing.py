"""Makes the jobs of schedules whose time has come: exactly one for each due time.

Every worker does it, whatever queues it serves. A row is locked while its due times are worked
out, and the run of a due time, its job and the next due time are one transaction. A crash before
the commit has done nothing, and one after it has done everything.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from hipq_django import events
from hipq_django.answers.cancelling import cancel_locked
from hipq_django.api.building import Builder
from hipq_django.api.enqueueing import announce_new, insert_or_find
from hipq_django.api.keys import places_of
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.built_once import built_once
from hipq_django.database.errors import in_one_line
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import worker_transaction
from hipq_django.dependencies.following import store
from hipq_django.domain.drafts import BoundJob
from hipq_django.domain.pauses import pause_after
from hipq_django.domain.schedules import jitter_of, plan
from hipq_django.domain.states import NONE
from hipq_django.engines import engine_for
from hipq_django.models import Job, JobType, Link, Schedule, ScheduleRun
from hipq_django.models.masking import shown
from hipq_django.schedules.changing import run_of

PAGE_SIZE = 200
"""How many schedules are locked and fired at once."""
TRY_AGAIN = timedelta(seconds=30)
"""How long a schedule is left alone that could not be fired; then its due time is still on time."""

LEAST_SECONDS = 0.05
LOOK_SECONDS = 1.0
"""How old what a worker knows of the next due time may be, where a look does not take long."""
LOOK_SHARE = 0.1
"""The share of time, at most, for looks that find nothing due (docs/benchmarks.md, W3d)."""
MAX_LOOK_SECONDS = 5.0
"""How old it may be after a slow look, even if the database was only busy."""

KIND = ScheduleRun.Kind


class Firing:
    """Fires the schedules of an instance, and knows when the next one is due."""

    def __init__(self, config: InstanceSettings) -> None:
        self._config = config
        self.due_at = 0.0
        """When to look again, by the monotonic clock."""
        self.wake_at = inf
        """When a schedule is due, by the same clock, if that is before the next look."""
        self.next_time: datetime | None = None
        """When the first one is due that is not fired, by the last look; None if nobody knows."""
        self._left_alone: Isolation[int] = Isolation("fire_schedules", "schedule_id")

    def run(self) -> int:
        """Fire what is due; return how many schedules were."""
        using, now = self._config.database, clock.now(self._config.database)
        began, next_time = time.monotonic(), self.next_time
        fired = 0
        if next_time is None or next_time > now:
            next_time = self.next_time = self._next_time(now)
        if next_time is not None and next_time <= now:
            fired = fire_page(self._config, now, self._left_alone)
            self.next_time = None
        left = inf
        if fired:
            left = 0.0  # the next call finds out when the next one is due
        elif next_time is not None and self._left_alone.is_calm:
            # What is due and was not fired is being fired by others, or cannot be fired now.
            left = max(LEAST_SECONDS, (next_time - clock.now(using)).total_seconds())
        ended = time.monotonic()
        pause = pause_after(ended - began, LOOK_SHARE, least=LOOK_SECONDS, most=MAX_LOOK_SECONDS)
        self.due_at = ended + min(left, pause)
        # For a mere look nobody needs to wake: it is done at the next pass.
        self.wake_at = self.due_at if left < pause else inf
        return fired

    def _next_time(self, now: datetime) -> datetime | None:
        config, left = self._config, self._left_alone.ids or NOBODY
        return next(iter(_next_times(config.name, left, now - TRY_AGAIN, config.database)), None)


NOBODY = (0,)
"""No schedule has this id; a query that is built once needs one."""


def _armed(instance: str, left: Collection[int], again: datetime, using: str) -> QuerySet[Schedule]:
    """Return the schedules that are fired when they are due, the first ones first.

    But for those that are left alone. One with a problem is one of them if that was found before
    the moment `again`.
    """
    rows = Schedule.objects.using(using).filter(instance=instance).order_by("next_time")
    rows = rows.exclude(ids_in("pk", left))
    rows = rows.filter(paused=False, retired=False, next_time__isnull=False)
    return rows.filter(Q(problem=NONE) | Q(update_time__lte=again))


@built_once
def _next_times(instance: str, left: Collection[int], again: datetime, using: str) -> Any:
    return _armed(instance, left, again, using).values_list("next_time", flat=True)[:1]


@built_once
def _locked_due(
    instance: str, left: Collection[int], again: datetime, now: datetime, using: str
) -> QuerySet[Schedule]:
    # Without a join and another order, so that the planner always uses the index of due times.
    due = _armed(instance, left, again, using).filter(next_time__lte=now)
    return locked(due, skip_locked=True)[:PAGE_SIZE]


@built_once
def _types_of(ids: Sequence[int], using: str) -> QuerySet[JobType]:
    return JobType.objects.using(using).filter(ids_in("pk", ids)).select_related("queue")


def fire_page(config: InstanceSettings, now: datetime, left_alone: Isolation[int]) -> int:
    """Fire the first due schedules that nobody else is firing, and that are not left alone.

    Return how many were: a schedule that cannot be fired stops no other.
    """
    using = config.database
    with worker_transaction(using):
        due = _locked_due(config.name, left_alone.ids or NOBODY, now - TRY_AGAIN, now, using)
        rows = sorted(due, key=lambda row: (row.next_time, row.pk))  # of two at once the older one
        types = {row.pk: row for row in _types_of([row.job_type_id for row in rows], using)}
        for row in rows:
            row.job_type = types[row.job_type_id]
        return _fire(rows, now, using, left_alone)


def _fire(rows: Sequence[Schedule], now: datetime, using: str, left_alone: Isolation[int]) -> int:
    """Fire locked schedules; return how many were, or got a problem noted."""
    by_id = {row.pk: row for row in rows}
    noted: list[int] = []

    def fire_some(ids: Sequence[int]) -> int:
        with transaction.atomic(using=using):
            fire([by_id[pk] for pk in ids], now, using)
        return len(ids)

    def note(pk: int, error: Exception) -> None:
        _note_problem(by_id[pk], error, now, using)
        noted.append(pk)

    return left_alone.move(list(by_id), fire_some, note) + len(noted)


def _note_problem(row: Schedule, error: Exception, now: datetime, using: str) -> None:
    problem = in_one_line(error, partial(shown, row))
    events.error("schedule_not_fired", "tried again in half a minute", row=row, error=problem)
    rows = Schedule.objects.using(using).filter(pk=row.pk)
    rows.update(problem=problem, update_time=now)


def fire(rows: Sequence[Schedule], now: datetime, using: str) -> None:
    """Fire locked schedules, in the current transaction.

    The given rows stay as they were read: if this fails, they are fired anew.
    """
    live, known = live_jobs(rows, using), _known(rows, now, using)
    made = Made.of(rows, KIND.FIRED, now)
    by_time: dict[datetime | None, list[int]] = {}
    for row in rows:
        assert row.next_time is not None  # noqa: S101 - it is due
        planned = plan(row.spec, row.next_time, now)
        if planned.missed:
            made.runs.append(run_of(row, planned.missed, now))
        due = [at for at in planned.fire if (row.pk, at) not in known]
        made.add(row, due, live.get(row.pk, []), in_turn=planned.in_turn)
        by_time.setdefault(planned.next_time, []).append(row.pk)
    made.write()
    for next_time, ids in by_time.items():
        engine_for(using).move_on(ids, next_time, now)


def _known(rows: Sequence[Schedule], now: datetime, using: str) -> set[tuple[int, datetime]]:
    """Return the due times of which jobs were made already, by a backfill say."""
    first = min(row.next_time or now for row in rows)
    return set(_runs_since([row.pk for row in rows], first, using))


@built_once
def _runs_since(schedules: Sequence[int], first: datetime, using: str) -> Any:
    runs = ScheduleRun.objects.using(using).filter(ids_in("schedule", schedules))
    runs = runs.filter(due_time__gte=first, kind__in=[KIND.FIRED, KIND.BACKFILLED])
    return runs.values_list("schedule_id", "due_time")


def live_jobs(rows: Sequence[Schedule], using: str) -> dict[int, list[Job]]:
    """Return the live jobs of schedules, by the ids of these, oldest first.

    Only the columns that show their state are read.
    """
    found: dict[int, list[Job]] = {}
    for job in _live_of([row.pk for row in rows], using):
        found.setdefault(job.schedule_id or 0, []).append(job)
    return found


@built_once
def _live_of(schedules: Sequence[int], using: str) -> QuerySet[Job]:
    jobs = Job.objects.using(using).filter(ids_in("schedule_id", schedules)).order_by("pk")
    return jobs.exclude(state="final").only("schedule_id", "state", "job_key", "hold_time")


@dataclass(slots=True)
class New:
    """A job that is made of a due time, the run that says so, and the jobs that it comes after."""

    job: Job
    run: ScheduleRun
    after: Sequence[Job]


@dataclass(slots=True)
class Made:
    """What is made of due times of one kind, and written together."""

    builder: Builder
    kind: ScheduleRun.Kind
    now: datetime
    new: list[New] = field(default_factory=list)
    runs: list[ScheduleRun] = field(default_factory=list)
    """The runs without a job of their own."""

    @classmethod
    def of(cls, rows: Sequence[Schedule], kind: ScheduleRun.Kind, now: datetime) -> Made:
        """Begin. Every worker fires, also for job types that only the code of others declares.

        These are taken as their rows say, and so stay what other releases have made of them.
        """
        types = {row.job_type.name: row.job_type for row in rows}
        builder = Builder(rows[0].instance, lambda _, name: types[name], verb=None)
        return cls(builder, kind, now)

    @property
    def jobs(self) -> list[Job]:
        """The jobs that are made."""
        return [new.job for new in self.new]

    def add(
        self, row: Schedule, due: Sequence[datetime], live: Sequence[Job], *, in_turn: bool = False
    ) -> None:
        """Add what is made of due times, as the schedule says for jobs that overlap.

        Those `in_turn` run one after the other, unless the schedule allows them to overlap.
        """
        before = list(live)
        for at in due:
            run = ScheduleRun(schedule=row, due_time=at, kind=self.kind, create_time=self.now)
            after = before if self._waits(row, before, in_turn=in_turn) else []
            if before and not after and row.overlap == "replace":
                reason = f"Replaced by the job of {at:%Y-%m-%d %H:%M:%S %Z}"
                _cancel(before, reason, self.builder.using)
            elif before and not after and row.overlap != "allow":
                self.runs.append(_skipped(run, before[-1]))
                continue
            job = self._job(row, at, held=bool(after))
            self.new.append(New(job, run, after))
            before = [job] if in_turn else [*before, job]

    @staticmethod
    def _waits(row: Schedule, before: Sequence[Job], *, in_turn: bool) -> bool:
        """Return whether the next job comes after those before; at most one waits for another."""
        if not before or row.overlap == "allow":
            return False
        is_free = all(job.hold_time is None for job in before)
        return in_turn or (row.overlap == "wait" and is_free)

    def _job(self, row: Schedule, at: datetime, *, held: bool) -> Job:
        when = self.now  # whoever runs it by hand means now
        if self.kind != KIND.MANUAL:
            when = max(at + jitter_of(row.name, row.jitter), self.now)
        # Its arguments were checked when they were stored; the code may be of another release.
        new = BoundJob(row.job_type.name, row.job_data, scheduled_run_time=when, **row.options)
        job = self.builder.build(new, held=held)
        job.schedule_id, job.due_time = row.pk, at
        return job

    def write(self) -> None:
        """Write runs, jobs and links, in the current transaction.

        A due time whose job would have a key that is taken is skipped. All jobs of a schedule have
        the same keys, so that no other job comes after one that is left out.
        """
        if self.new:
            self._write_jobs()
        runs = [*self.runs, *(new.run for new in self.new)]
        engine_for(self.builder.using).insert_runs(runs)

    def _insert(self) -> None:
        """Insert the jobs, and leave out those whose key is taken."""
        jobs, using = self.jobs, self.builder.using
        if not any(map(places_of, jobs)):
            engine_for(using).insert(jobs, len(jobs), by_key=False, extra=True)
            return
        for new, job in zip(self.new, insert_or_find(jobs, using), strict=True):
            if job is not new.job:
                self.runs.append(_skipped(new.run, job))
        self.new = [new for new in self.new if new.job.pk]

    def _write_jobs(self) -> None:
        self._insert()
        jobs, using = self.jobs, self.builder.using
        for new in self.new:  # not before: both passes of a repeated hour would be stored as one
            new.job.due_time = new.run.schedule.shown(new.run.due_time)
        links = [
            Link(job=new.job, needs_job=job, on="final") for new in self.new for job in new.after
        ]
        store(links, [new.job.pk for new in self.new if new.after], using)
        announce_new(jobs, using)
        for new in self.new:
            new.run.job_id = new.job.pk
            due_time = str(new.job.due_time)
            events.info("schedule_fired", row=new.job, due_time=due_time)


def _skipped(run: ScheduleRun, live: Job) -> ScheduleRun:
    run.kind, run.job_id = KIND.SKIPPED, live.pk
    run.reason = f"job {live.pk} is {live.state}"  # without its key, which not all may see
    return run


def _cancel(jobs: Sequence[Job], reason: str, using: str) -> None:
    """Cancel those of these jobs that are still live."""
    rows = Job.objects.using(using).live().filter(pk__in=[job.pk for job in jobs if job.pk])
    rows = rows.select_related("queue", "job_type").order_by("pk")
    cancel_locked(list(locked(rows)), reason, using)
