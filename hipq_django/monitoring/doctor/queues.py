"""What the doctor says of queues, and of how their jobs end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from django.db import DatabaseError, transaction

from hipq_django.conf.instances import InstanceSettings, get_throttlers
from hipq_django.database import clock
from hipq_django.domain.states import NONE
from hipq_django.domain.throttling import RUN, ThrottlerError, ask, candidate_of
from hipq_django.engines import engine_for
from hipq_django.exceptions import ConfigurationError
from hipq_django.job_types.registry import find_declared
from hipq_django.models import Job, JobType, Queue
from hipq_django.monitoring.commands import command
from hipq_django.monitoring.counts import format_count
from hipq_django.monitoring.doctor.findings import Finding, Level, problem, span, warning
from hipq_django.monitoring.endings import Trend
from hipq_django.monitoring.overview import Overview, QueueCounts

OVERDUE_SECONDS = 60.0
"""How long a worker may take for its duties of each second."""

LONG_OVERDUE_SECONDS = 900.0

LOOKED_AT = 20
"""How many due jobs of a queue with throttlers are asked about: one tenant's may be held."""

MOST = 0.5
"""From this share on it is a problem."""


def findings(config: InstanceSettings, view: Overview) -> Iterator[Finding]:
    """Yield why queues do not run, or are slow, and which jobs fail more than usual."""
    for queue in view.queues:
        yield from _queue(config, queue)
    yield from endings(view)


def _queue(config: InstanceSettings, queue: QueueCounts) -> Iterator[Finding]:
    """Say why a queue does not run, the first cause alone, or else that it is slow."""
    if queue.problem != NONE:
        yield _blocked(queue)
    elif not queue.served:
        yield from _unserved(config, queue)
    elif queue.paused and queue.due:
        yield _paused(queue)
    elif queue.due and queue.oldest_due_seconds >= OVERDUE_SECONDS:
        yield from _late(config, queue)


def _blocked(queue: QueueCounts) -> Finding:
    return problem(
        "throttler_problem",
        f"queue {queue.name}",
        f"blocked, because {queue.problem}",
        f"Its jobs do not start until its throttlers work; {_due(queue)}.",
        "Correct the throttler, or remove it from THROTTLERS, and restart the workers.",
    )


def _unserved(config: InstanceSettings, queue: QueueCounts) -> Iterator[Finding]:
    is_urgent = queue.due or queue.in_error
    if is_urgent or queue.running or queue.scheduled:
        yield Finding(
            Level.PROBLEM if is_urgent else Level.WARNING,
            "no_worker",
            f"queue {queue.name}",
            f"no worker serves it; {_due(queue)}, {format_count(queue.scheduled)} scheduled, "
            f"{format_count(queue.running)} running.",
            "Its jobs do not start, and no response handler or retry handler runs.",
            f"Start one: {command('hipq_worker', queue.name, instance=config.name)}",
        )


def _paused(queue: QueueCounts) -> Finding:
    return warning(
        "paused",
        f"queue {queue.name}",
        f"paused, and {_due(queue)}.",
        "Its jobs do not start.",
        "Resume it in the admin when the reason for the pause is gone.",
    )


def _late(config: InstanceSettings, queue: QueueCounts) -> Iterator[Finding]:
    """Say nothing if throttlers hold its first jobs back as intended."""
    if queue.is_unanswered:
        yield _unanswered(queue)
    elif queue.is_full:
        yield _full(queue)
    elif not _is_held(config, queue.name):
        yield _overdue(config, queue)


_ASK = (
    "Ask the other system whether it answers; look in the admin for answers without a job, and in "
    "the log for requests that were refused."
)


def _reached(queue: QueueCounts) -> str:
    limit = "limit" if queue.share is None else "share of the limit"
    return f"its {limit} is reached, {queue.load:g} of {queue.own_limit:g}"


def _full(queue: QueueCounts) -> Finding:
    return warning(
        "limit_reached",
        f"queue {queue.name}",
        f"{_reached(queue)}, and the next job needs {queue.next_factor:g}; {_due(queue)}.",
        f"{format_count(queue.awaiting_answer)} of its running jobs wait for an answer, and count.",
        _ASK
        if queue.is_quiet
        else "Raise the limit if the other system allows it; check whether its answers still come. "
        "Jobs that gather others count too: enqueue into another queue what they gather.",
    )


def _unanswered(queue: QueueCounts) -> Finding:
    since = "a day" if queue.quiet_seconds is None else span(queue.quiet_seconds)
    return problem(
        "unanswered",
        f"queue {queue.name}",
        f"{_reached(queue)}, and no job of it has ended for {since}; {_due(queue)}.",
        f"{format_count(queue.awaiting_answer)} of its running jobs wait for an answer; no job "
        "starts before some are answered or time out.",
        _ASK,
    )


def _overdue(config: InstanceSettings, queue: QueueCounts) -> Finding:
    long = queue.oldest_due_seconds >= LONG_OVERDUE_SECONDS
    return Finding(
        Level.PROBLEM if long else Level.WARNING,
        "overdue",
        f"queue {queue.name}",
        f"{_due(queue)}, though workers serve it.",
        "There are too few workers, they are too slow, or something holds these jobs.",
        "Open the oldest in the admin: it says why it does not run. If nothing holds it, start "
        f"more workers or threads: {command('hipq_worker', queue.name, instance=config.name)}",
    )


def _due(queue: QueueCounts) -> str:
    if not queue.due:
        return "no job is due"
    jobs = "1 job is due" if queue.due == 1 else f"{format_count(queue.due)} jobs are due"
    return f"{jobs}, the oldest for {span(queue.oldest_due_seconds)}"


def unknown_types(config: InstanceSettings) -> list[JobType]:
    """Return the job types that no code of this project declares."""
    rows = JobType.objects.using(config.database).filter(instance=config.name)
    return [row for row in rows if find_declared(row.instance, row.name, row.kind) is None]


def _is_held(config: InstanceSettings, name: str) -> bool:
    """Whether no job of a queue is overdue but those that nobody can start now.

    Those of unknown types are told of as such. They stay at the head of their queue, and must not
    hide that others are overdue.
    """
    using = config.database
    queue = Queue.objects.using(using).get(instance=config.name, name=name)
    is_throttled = bool(config.queue(name).throttlers)
    overdue = queue.jobs.using(using).due(clock.now(using) - timedelta(seconds=OVERDUE_SECONDS))
    known = overdue.exclude(job_type__in=unknown_types(config)).order_by("rank", "id")
    jobs = list(known.select_related("job_type")[: LOOKED_AT if is_throttled else 1])
    return not jobs or (is_throttled and _are_held(queue, jobs))


def _are_held(queue: Queue, jobs: Sequence[Job]) -> bool:
    """Whether throttlers hold each of these jobs, of which they are asked together."""
    try:
        throttlers = get_throttlers(queue.instance, queue.name)
        with transaction.atomic(using=queue.using):
            running = engine_for(queue.using).running(queue, throttlers)
            candidates = [candidate_of(job) for job in jobs]
            verdicts = ask(throttlers, queue, clock.now(queue.using), running, candidates)
    except (ThrottlerError, ConfigurationError, DatabaseError):
        return False
    return RUN not in verdicts.values()


# How jobs end


def endings(view: Overview) -> Iterator[Finding]:
    """One finding for a queue; for a job type only where its queue, as a whole, is as usual."""
    for code, how in (("failing", "failed"), ("timing_out", "timed_out")):
        unusual = [queue for queue in view.queues if _is_unusual(queue.trend, code)]
        for queue in unusual:
            of_queue = [row for row in view.job_types if row.queue == queue.name]
            mostly = _mostly({row.name: getattr(row.trend.lately, how) for row in of_queue})
            yield _more_than_usual(f"queue {queue.name}", queue.trend, code, how, mostly)
        told = {queue.name for queue in unusual}
        for row in view.job_types:
            if row.queue not in told and _is_unusual(row.trend, code):
                yield _more_than_usual(f"job type {row.name}", row.trend, code, how)


def _is_unusual(trend: Trend, code: str) -> bool:
    return trend.is_failing if code == "failing" else trend.is_timing_out


_WHY = {
    "failed": "Their policies or retry handlers gave them up.",
    "timed_out": "They were not answered in time, or their handlers took too long.",
}
_WHAT_TO_DO = {
    "failed": "Open the failed jobs in the admin: their errors say why. Pause the queue while the "
    "other system is down; requeue them when the cause is gone.",
    "timed_out": "Check whether the other system answers, and whether its answers reach this "
    "project: webhooks that were refused, answers without a job, a consumer that is not running.",
}


def _more_than_usual(where: str, trend: Trend, code: str, how: str, mostly: str = "") -> Finding:
    lately, usually = trend.lately, trend.usually
    number, share = getattr(lately, how), lately.share(getattr(lately, how))
    usual = usually.share(getattr(usually, how))
    before = f"{usual:.0%} the day before" if usually.ended else "none ended the day before"
    return Finding(
        Level.PROBLEM if share >= MOST else Level.WARNING,
        code,
        where,
        f"{number:,} of the last {lately.ended:,} jobs {how.replace('_', ' ')} within an hour "
        f"({share:.0%}; {before}){mostly}.",
        _WHY[how],
        _WHAT_TO_DO[how],
    )


def _mostly(numbers: Mapping[str, int]) -> str:
    """Return the job types that most of them are of."""
    counted = sorted([(number, name) for name, number in numbers.items()], reverse=True)
    most = [f"{name} {number:,}" for number, name in counted[:3] if number]
    return f": {', '.join(most)}" if most else ""
