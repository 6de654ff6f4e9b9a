"""What the doctor says of job types, answers, schedules, old jobs and edits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import Min, OuterRef, QuerySet, Subquery

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.lookups import ids_in
from hipq_django.domain.states import NONE
from hipq_django.maintenance.retention import not_needed, past_retention
from hipq_django.models import Answer, Job, Queue, Schedule, ScheduleRun
from hipq_django.models.undeclared_names import HOW_TO_DECLARE
from hipq_django.monitoring.commands import command
from hipq_django.monitoring.counts import capped_count, format_count
from hipq_django.monitoring.doctor.findings import Finding, note, problem, span, warning
from hipq_django.monitoring.doctor.queues import unknown_types
from hipq_django.monitoring.overview import Overview
from hipq_django.schedules import declared

MANY_EARLY_ANSWERS = 1_000

IN_VAIN = timedelta(days=1)
"""For how long answers that came in vain are told."""

LATE = timedelta(minutes=1)
"""How late a schedule may be fired."""

SKIPS = 5
"""How many skipped due times in a row are told."""

UNPRUNED = timedelta(days=1)

PRUNABLE = 1_000
"""How many old final jobs of a queue are looked at: the first may be needed by others."""


def findings(config: InstanceSettings) -> Iterator[Finding]:
    """Yield what is wrong with the rows of an instance."""
    yield from _inbox(config)
    yield from _schedules(config)
    yield from _skipping(config)
    for where, what in declared.edits(config).items():
        name = where.rpartition(" ")[2]
        yield note(
            "edited",
            where,
            f"{what}.",
            "An edit stays, whatever the setting and the code say.",
            f"Undo it by {command('hipq_sync', '--reset', name, instance=config.name)}",
        )


def of_queues(config: InstanceSettings, view: Overview) -> Iterator[Finding]:
    """Yield what is wrong with the jobs of the queues and types of an overview."""
    names = {row.name for row in view.job_types}
    for row in unknown_types(config):
        waiting = Job.objects.using(config.database).waiting().filter(job_type=row)
        if row.name in names and (number := capped_count(waiting)):
            yield problem(
                "unknown_type",
                f"job type {row.name}",
                f"{format_count(number)} of its jobs wait; no code here declares it.",
                "They wait until a worker knows the type; nothing is lost.",
                f"{HOW_TO_DECLARE} Or deploy the code that declares it, or cancel the jobs in the "
                "admin.",
            )
    unpruned = [name for name in (queue.name for queue in view.queues) if _has_old(config, name)]
    if unpruned:
        yield warning(
            "not_pruned",
            f"queue {', '.join(unpruned)}",
            "final jobs are more than a day past their retention.",
            "The tables keep growing; backups and vacuum take longer.",
            f"Run {command('hipq_prune', instance=config.name)} each day, for example from cron.",
        )


def _has_old(config: InstanceSettings, name: str) -> bool:
    """Return whether a queue has final jobs that pruning would have deleted a day ago."""
    using = config.database
    queue = Queue.objects.using(using).get(instance=config.name, name=name)
    old = past_retention(queue, clock.now(using) - UNPRUNED)
    first = list(old.order_by("update_time").values_list("pk", flat=True)[:PRUNABLE])
    return bool(not_needed(Job.objects.using(using).filter(ids_in("pk", first))).exists())


# Answers


def _inbox(config: InstanceSettings) -> Iterator[Finding]:
    where, now = f"instance {config.name}", clock.now(config.database)
    rows = Answer.objects.using(config.database).filter(instance=config.name, job=None)
    ttl = timedelta(seconds=config.answer_ttl_seconds)
    yield from _early(rows.filter(status=Answer.Status.EARLY), where, ttl, now)
    in_vain = rows.filter(status=Answer.Status.UNMATCHED)
    malformed = in_vain.filter(kind=Answer.Kind.MALFORMED, receive_time__gt=now - IN_VAIN)
    # They were kept as early for so long, and came in vain when that was over.
    unmatched = in_vain.exclude(kind=Answer.Kind.MALFORMED).filter(
        receive_time__gt=now - IN_VAIN - ttl
    )
    if number := capped_count(unmatched):
        yield warning(
            "unmatched_answers",
            where,
            f"{format_count(number)} answers of the last day never found a job.",
            "The jobs that they were meant for, if any, time out.",
            "Look at them in the admin: is the key or the job type wrong, or are they irrelevant?",
        )
    if number := capped_count(malformed):
        yield warning(
            "malformed_messages",
            where,
            f"{format_count(number)} messages of the last day were no answers.",
            "They are kept; the jobs that they were meant for, if any, time out.",
            "Look at them in the admin, under Answers: each shows its problem. Correct the map "
            "function, and let the broker deliver them again; for messages that are not for this "
            "project, let it return IGNORE.",
        )


def _early(early: QuerySet[Answer], where: str, ttl: timedelta, now: Any) -> Iterator[Finding]:
    number = capped_count(early)
    oldest = now - (early.aggregate(oldest=Min("receive_time"))["oldest"] or now)
    if number > MANY_EARLY_ANSWERS or oldest > ttl / 2:
        yield warning(
            "early_answers",
            where,
            f"{format_count(number)} answers wait for a job with their key, the oldest for "
            f"{span(oldest.total_seconds())}.",
            f"After {span(ttl.total_seconds())} they count as unmatched, and their jobs time out.",
            "Compare the keys of the answers with those of the running jobs in the admin.",
        )


# Schedules


def _schedules(config: InstanceSettings) -> Iterator[Finding]:
    now = clock.now(config.database)
    rows = Schedule.objects.using(config.database).filter(instance=config.name, paused=False)
    for row in rows.order_by("name"):
        where = f"schedule {row.name}"
        if row.retired:
            yield warning(
                "schedule_retired",
                where,
                "no live worker's code declares it any more.",
                "None of its jobs are made.",
                "Delete it, or deploy the code that declares it.",
            )
        elif row.problem != NONE:
            yield problem(
                "schedule_problem",
                where,
                f"it cannot be fired: {row.problem}",
                "None of its jobs are made; other schedules are not affected.",
                "Correct the schedule; it is tried again each half minute.",
            )
        elif row.next_time is not None and now - row.next_time >= LATE:
            yield problem(
                "schedule_late",
                where,
                f"it has been due for {span((now - row.next_time).total_seconds())}.",
                "Its jobs are made once a worker runs.",
                "Start a worker of the instance, or see its log.",
            )


def _skipping(config: InstanceSettings) -> Iterator[Finding]:
    runs = ScheduleRun.objects.using(config.database).filter(schedule=OuterRef("pk"))
    kinds = runs.exclude(kind=ScheduleRun.Kind.MANUAL).order_by("-due_time").values("kind")
    last = {f"run_{n}": Subquery(kinds[n : n + 1]) for n in range(SKIPS)}
    rows = Schedule.objects.using(config.database).filter(instance=config.name, paused=False)
    rows = rows.annotate(**last).filter(**dict.fromkeys(last, ScheduleRun.Kind.SKIPPED))
    for row in rows.filter(retired=False).order_by("name"):
        yield warning(
            "schedule_skipping",
            f"schedule {row.name}",
            f"its last {SKIPS} due times were skipped.",
            "It runs less often than its times say.",
            "Read the reasons on its page: mostly the job before does not end, or a key is taken.",
        )
