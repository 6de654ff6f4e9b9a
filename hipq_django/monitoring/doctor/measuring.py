"""The queries that measure what the rules judge; those for PostgreSQL have their own file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import Min, OuterRef, QuerySet, Subquery

from hipq_django.conf import rules
from hipq_django.conf.instances import InstanceSettings, get_throttlers
from hipq_django.database import clock
from hipq_django.database.schema import missing_migrations
from hipq_django.database.transactions import looks_only
from hipq_django.domain.states import NONE
from hipq_django.domain.throttling import RUN, ThrottlerError, ask, candidate_of
from hipq_django.engines import engine_for
from hipq_django.exceptions import ConfigurationError, nearest
from hipq_django.job_types.registry import find_declared, known_names
from hipq_django.maintenance.retention import not_needed
from hipq_django.models import Answer, Job, JobType, Queue, Schedule, ScheduleRun
from hipq_django.models.job import JobQuerySet
from hipq_django.monitoring import overview
from hipq_django.monitoring.counts import capped_count
from hipq_django.monitoring.doctor import postgresql
from hipq_django.monitoring.doctor.measurements import SKIPS, Inbox, Measured, ScheduleState
from hipq_django.monitoring.overview import Overview
from hipq_django.schedules import declared

PATIENCE = timedelta(minutes=1)
"""How long a worker may take for its duties of each second."""

LOOKED_AT = 20
"""How many due jobs of a queue with throttlers are asked about: one tenant's may be held."""

UNPRUNED = timedelta(days=1)

PRUNABLE = 1_000
"""How many old final jobs of a queue are looked at: the first may be needed by others."""

IN_VAIN = timedelta(days=1)
"""For how long answers that came in vain are told."""


def measure(config: InstanceSettings) -> Measured:
    """Measure an instance and its database; change nothing."""
    with looks_only(config.database):
        return _measure(config, config.database)


def _measure(config: InstanceSettings, using: str) -> Measured:
    missing = missing_migrations(using)
    if missing:
        return Measured(config.name, using, missing_migrations=tuple(missing))
    offset, now = clock.measure(using), clock.now(using)
    return replace(
        measure_queues(config, overview.take(config)),
        throttler_problems=tuple(problem.msg for problem in rules.throttler_problems()),
        sources=tuple(config.sources),
        past_deadline=capped_count(_jobs(config).past_deadline(now - PATIENCE)),
        undecided=_undecided(config, now - PATIENCE),
        inbox=_inbox(config, now),
        schedules=tuple(_schedules(config, now)),
        edits=declared.edits(config),
        clock_offset_seconds=offset.total_seconds(),
        postgresql=postgresql.measure(using),
    )


def measure_queues(config: InstanceSettings, view: Overview) -> Measured:
    """Measure what the rules about the queues of an overview judge; it may have only some."""
    using, now = config.database, clock.now(config.database)
    unknown, names = dict(_unknown_types(config)), {row.name for row in view.job_types}
    queues = Queue.objects.using(using).filter(
        instance=config.name, name__in=[queue.name for queue in view.queues]
    )
    return Measured(
        config.name,
        using,
        view,
        unknown_types={row.name: number for row, number in unknown.items() if row.name in names},
        nearest_types=dict(_nearest_types(unknown)),
        held=frozenset(_held_queues(config, queues, now, unknown)),
        unpruned=tuple(_unpruned(queues, now - UNPRUNED)),
    )


def _jobs(config: InstanceSettings) -> JobQuerySet:
    return Job.objects.using(config.database).of_instance(config.name)


def _unknown_types(config: InstanceSettings) -> Iterator[tuple[JobType, int]]:
    for row in JobType.objects.using(config.database).filter(instance=config.name):
        if find_declared(row.instance, row.name, row.kind) is None:
            yield row, capped_count(_jobs(config).waiting().filter(job_type=row))


def _nearest_types(unknown: Collection[JobType]) -> Iterator[tuple[str, str]]:
    for row in unknown:
        if near := nearest(row.name, known_names(row.instance)):
            yield row.name, near


def _undecided(config: InstanceSettings, before: datetime) -> int:
    return capped_count(_jobs(config).in_error().filter(worker=None, update_time__lt=before))


def _held_queues(
    config: InstanceSettings, queues: QuerySet[Any], now: datetime, unknown: Collection[JobType]
) -> Iterator[str]:
    """Yield the queues in which no job is overdue but those that nobody can start now.

    Throttlers of a blocked queue are not asked: they may hang here too, and why is known.

    Those of unknown types are told of as such. They stay at the head of their queue, and must not
    hide that others are overdue.
    """
    for queue in queues.filter(throttler_problem=NONE):
        is_throttled = bool(config.queue(queue.name).throttlers)
        if is_throttled or unknown:
            overdue = queue.jobs.using(config.database).due(now - PATIENCE)
            known = overdue.exclude(job_type__in=unknown).order_by("rank", "id")
            first = known[: LOOKED_AT if is_throttled else 1]
            jobs = list(first.select_related("job_type"))
            if not jobs or (is_throttled and _are_held(queue, jobs, now)):
                yield queue.name


def _are_held(queue: Queue, jobs: Sequence[Job], now: datetime) -> bool:
    """Whether throttlers hold each of these jobs, of which they are asked together."""
    try:
        throttlers = get_throttlers(queue.instance, queue.name)
        with transaction.atomic(using=queue.using):
            running = engine_for(queue.using).running(queue, throttlers)
            verdicts = ask(throttlers, queue, now, running, [candidate_of(job) for job in jobs])
    except (ThrottlerError, ConfigurationError, DatabaseError):
        return False
    return RUN not in verdicts.values()


def _inbox(config: InstanceSettings, now: datetime) -> Inbox:
    rows = Answer.objects.using(config.database).filter(instance=config.name, job=None)
    early = rows.filter(status=Answer.Status.EARLY)
    oldest = early.aggregate(oldest=Min("receive_time"))["oldest"]
    in_vain = rows.filter(status=Answer.Status.UNMATCHED)
    malformed = in_vain.filter(kind=Answer.Kind.MALFORMED, receive_time__gt=now - IN_VAIN)
    # They were kept as early for so long, and came in vain when that was over.
    began = now - IN_VAIN - timedelta(seconds=config.answer_ttl_seconds)
    unmatched = in_vain.exclude(kind=Answer.Kind.MALFORMED).filter(receive_time__gt=began)
    return Inbox(
        early=capped_count(early),
        oldest_early_seconds=(now - oldest).total_seconds() if oldest else 0,
        ttl_seconds=config.answer_ttl_seconds,
        unmatched=capped_count(unmatched),
        malformed=capped_count(malformed),
    )


def _schedules(config: InstanceSettings, now: datetime) -> Iterator[ScheduleState]:
    rows = Schedule.objects.using(config.database).filter(instance=config.name, paused=False)
    # One query for all of them: there may be one for each tenant.
    runs = ScheduleRun.objects.using(config.database).filter(schedule=OuterRef("pk"))
    last = runs.exclude(kind=ScheduleRun.Kind.MANUAL).order_by("-due_time").values("kind")
    places = {f"run_{n}": Subquery(last[n : n + 1]) for n in range(SKIPS)}
    for row in rows.annotate(**places).order_by("name"):
        due = now if row.retired or row.next_time is None else row.next_time
        kinds = [kind for name in places if (kind := getattr(row, name)) is not None]
        skipped = len(kinds) if set(kinds) == {ScheduleRun.Kind.SKIPPED} else 0
        problem = "" if row.problem == NONE else row.problem
        yield ScheduleState(
            row.name, max(0.0, (now - due).total_seconds()), skipped, row.retired, problem
        )


def _unpruned(queues: QuerySet[Any], before: datetime) -> Iterator[str]:
    for queue in queues:
        old = before - timedelta(days=queue.retention_days)
        finals = queue.jobs.using(queue.using).final().filter(update_time__lt=old)
        first = list(finals.order_by("update_time").values_list("pk", flat=True)[:PRUNABLE])
        if first and not_needed(Job.objects.using(queue.using).filter(pk__in=first)).exists():
            yield queue.name
