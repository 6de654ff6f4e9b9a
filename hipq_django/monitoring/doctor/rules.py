"""The rules about queues, processes and answers, and the list of all rules. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hipq_django.domain.states import NONE
from hipq_django.models.undeclared_names import HOW_TO_DECLARE
from hipq_django.models.worker import Trouble, Worker
from hipq_django.monitoring.commands import command
from hipq_django.monitoring.counts import format_count
from hipq_django.monitoring.doctor.database_rules import DATABASE_RULES
from hipq_django.monitoring.doctor.findings import Finding, Level, note, problem, span, warning
from hipq_django.monitoring.doctor.measurements import SKIPS, Inbox, Measured, ScheduleState
from hipq_django.monitoring.endings import Trend
from hipq_django.monitoring.overview import QueueCounts

OVERDUE_SECONDS = 60.0
LONG_OVERDUE_SECONDS = 900.0
MANY_EARLY_ANSWERS = 1_000

MOST = 0.5
"""From this share on it is a problem."""


def diagnose(measured: Measured) -> list[Finding]:
    """Return what is wrong, problems first; the missing migrations alone where there are any."""
    if measured.missing_migrations:
        return [_missing_migrations(measured)]
    rules = (*_RULES, *DATABASE_RULES)
    findings = [finding for rule in rules for finding in rule(measured)]
    return sorted(findings, key=lambda finding: finding.level is not Level.PROBLEM)


def _missing_migrations(measured: Measured) -> Finding:
    names = ", ".join(measured.missing_migrations)
    return problem(
        "missing_migrations",
        f"database {measured.database}",
        f"migrations are not applied: {names}.",
        "No worker starts before they are; nothing else was examined.",
        f"Run manage.py migrate --database {measured.database}.",
    )


# Queues


def _queues(measured: Measured) -> Iterator[Finding]:
    if measured.overview is None:
        return
    for queue in measured.overview.queues:
        yield from _queue(queue, measured)


def _queue(queue: QueueCounts, measured: Measured) -> Iterator[Finding]:
    """Say why a queue does not run, the first cause alone, or else that it is slow."""
    if queue.problem != NONE:
        yield _blocked(queue)
    elif not queue.served:
        yield from _unserved(queue, measured.instance)
    elif queue.paused and queue.due:
        yield _paused(queue)
    else:
        yield from _late(queue, measured)


def _late(queue: QueueCounts, measured: Measured) -> Iterator[Finding]:
    """None if a throttler holds its first jobs back as intended."""
    if not queue.due or queue.oldest_due_seconds < OVERDUE_SECONDS:
        return
    if queue.is_full:
        yield _unanswered(queue) if queue.is_unanswered else _full(queue)
    elif not queue.is_full and queue.name not in measured.held:
        yield _overdue(queue, measured.instance)


def _blocked(queue: QueueCounts) -> Finding:
    return problem(
        "throttler_problem",
        f"queue {queue.name}",
        f"blocked, because {queue.problem}",
        f"Its jobs do not start until its throttlers work; {_due(queue)}.",
        "Correct the throttler, or remove it from THROTTLERS, and restart the workers.",
    )


def _unserved(queue: QueueCounts, instance: str) -> Iterator[Finding]:
    if not (queue.due or queue.in_error or queue.running or queue.scheduled):
        return
    urgent = queue.due or queue.in_error
    start = f"Start one: {command('hipq_worker', queue.name, instance=instance)}"
    holds = "jobs whose attempts are over hold all threads that serve it"
    yield Finding(
        Level.PROBLEM if urgent else Level.WARNING,
        "threads_held" if queue.held else "no_worker",
        f"queue {queue.name}",
        f"{holds if queue.held else 'no worker serves it'}; {_due(queue)}, "
        f"{format_count(queue.scheduled)} scheduled, {format_count(queue.running)} running.",
        "Its jobs do not start, and no response handler or retry handler runs.",
        _FREE if queue.held else start,
    )


_FREE = (
    "Restart the worker, which frees its threads. Give each call of the handlers of these jobs a "
    "timeout of its own."
)


def _paused(queue: QueueCounts) -> Finding:
    return warning(
        "paused",
        f"queue {queue.name}",
        f"paused, and {_due(queue)}.",
        "Its jobs do not start.",
        "Resume it in the admin when the reason for the pause is gone.",
    )


def _needs(queue: QueueCounts) -> str:
    """Say what the next job needs where there is some room."""
    has_room = queue.load < queue.throttle_limit
    return f", and the next job needs {queue.next_factor:g}" if has_room else ""


def _full(queue: QueueCounts) -> Finding:
    return warning(
        "limit_reached",
        f"queue {queue.name}",
        f"its limit is reached, {queue.load:g} of {queue.throttle_limit:g}{_needs(queue)}; "
        f"{_due(queue)}.",
        f"{format_count(queue.awaiting_answer)} of its running jobs wait for an answer, and count.",
        _ASK
        if queue.is_quiet
        else "Raise the limit if the other system allows it; check whether its answers still come. "
        "Jobs that gather others count too: enqueue into another queue what they gather.",
    )


_ASK = (
    "Ask the other system whether it answers; look in the admin for answers without a job, and in "
    "the log for requests that were refused."
)


def _unanswered(queue: QueueCounts) -> Finding:
    since = "a day" if queue.quiet_seconds is None else span(queue.quiet_seconds)
    return problem(
        "unanswered",
        f"queue {queue.name}",
        f"its limit is reached, {queue.load:g} of {queue.throttle_limit:g}, and no job of it has "
        f"ended for {since}; {_due(queue)}.",
        f"{format_count(queue.awaiting_answer)} of its running jobs wait for an answer; no job "
        "starts before some are answered or time out.",
        _ASK,
    )


def _overdue(queue: QueueCounts, instance: str) -> Finding:
    long = queue.oldest_due_seconds >= LONG_OVERDUE_SECONDS
    return Finding(
        Level.PROBLEM if long else Level.WARNING,
        "overdue",
        f"queue {queue.name}",
        f"{_due(queue)}, though workers serve it.",
        "There are too few workers, they are too slow, or something holds these jobs.",
        "Open the oldest in the admin: it says why it does not run. If nothing holds it, start "
        f"more workers or threads: {command('hipq_worker', queue.name, instance=instance)}",
    )


def _due(queue: QueueCounts) -> str:
    if not queue.due:
        return "no job is due"
    jobs = "1 job is due" if queue.due == 1 else f"{format_count(queue.due)} jobs are due"
    return f"{jobs}, the oldest for {span(queue.oldest_due_seconds)}"


# How jobs end


def _endings(measured: Measured) -> Iterator[Finding]:
    """One finding for a queue; for a job type only where its queue, as a whole, is as usual."""
    if measured.overview is None:
        return
    types = measured.overview.job_types
    for code, how in (("failing", "failed"), ("timing_out", "timed_out")):
        unusual = [q for q in measured.overview.queues if _is_unusual(q.trend, code)]
        for queue in unusual:
            of_queue = [row for row in types if row.queue == queue.name]
            mostly = _mostly({row.name: getattr(row.trend.lately, how) for row in of_queue})
            yield _more_than_usual(f"queue {queue.name}", queue.trend, code, how, mostly)
        told = {queue.name for queue in unusual}
        for row in types:
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


# What workers should have done


def _workers(measured: Measured) -> Iterator[Finding]:
    for worker in measured.overview.workers if measured.overview else []:
        if worker.silent:
            yield problem(
                "silent_worker",
                f"worker {worker.name}",
                f"no heartbeat for {span(worker.heartbeat_age_seconds)}; it had "
                f"{worker.in_flight:,} jobs in flight.",
                "A live worker of the instance would have taken its jobs over, but there is none.",
                "Start a worker; the log of this one says why it stopped.",
            )
        yield from (_in_trouble(worker.name, trouble) for trouble in worker.troubles)


def _in_trouble(worker: str, trouble: Trouble) -> Finding:
    if trouble.name == Worker.HELD:
        what = f"{trouble.reason}, for {span(trouble.seconds)}."
        why = "Their handlers have not returned, and other jobs do not get these threads."
        return warning("threads_held", f"worker {worker}", what, why, _FREE)
    return Finding(
        Level.PROBLEM if trouble.seconds >= OVERDUE_SECONDS else Level.WARNING,
        "worker_trouble",
        f"worker {worker}",
        f"{trouble.name} has failed or hung for {span(trouble.seconds)}: {trouble.reason}",
        "It is tried again and again; the worker's other duties, and its queues, go on unless the "
        "whole pass is in trouble.",
        "See the worker's log around that time; correct the cause, and restart the worker if it "
        "hangs.",
    )


def _consumers(measured: Measured) -> Iterator[Finding]:
    """One finding for each silent process, and one for each source that nobody reads."""
    consumers = measured.overview.consumers if measured.overview else []
    for consumer in consumers:
        if consumer.silent:
            yield problem(
                "silent_consumer",
                f"consumer {consumer.name}",
                f"no heartbeat for {span(consumer.heartbeat_age_seconds)}; it had "
                f"{consumer.in_flight:,} messages of source {consumer.source} in flight.",
                "The broker delivers its unacknowledged messages to the next consumer.",
                "Its log says why it stopped; "
                f"start it again: {_consume(consumer.source, measured)}",
            )
    read = {consumer.source for consumer in consumers if not consumer.silent}
    for source in measured.sources:
        if source not in read:
            yield _unread(source, measured)


def _unread(source: str, measured: Measured) -> Finding:
    queues = measured.overview.queues if measured.overview else []
    awaiting = sum(queue.awaiting_answer for queue in queues)
    return Finding(
        Level.PROBLEM if awaiting else Level.WARNING,
        "no_consumer",
        f"source {source}",
        f"no consumer reads it; {format_count(awaiting)} jobs wait for an answer.",
        "Answers that come this way stay with the broker, and their jobs time out.",
        f"Start one: {_consume(source, measured)}",
    )


def _consume(source: str, measured: Measured) -> str:
    return command("hipq_consume", source, instance=measured.instance)


def _stuck(measured: Measured) -> Iterator[Finding]:
    why = "This has lasted for a minute; a worker that knows their types needs only a second."
    what_to_do = "Start a worker with this project's code; see the workers' logs for errors."
    for code, number, what in (
        ("time_outs", measured.past_deadline, "running jobs are past their deadline"),
        ("undecided", measured.undecided, "failed jobs wait for a decision"),
    ):
        if number:
            text = f"{format_count(number)} {what}."
            where = f"instance {measured.instance}"
            yield problem(code, where, text, why, what_to_do)


def _unknown_types(measured: Measured) -> Iterator[Finding]:
    for name, waiting in measured.unknown_types.items():
        near = measured.nearest_types.get(name)
        if waiting:
            yield problem(
                "unknown_type",
                f"job type {name}",
                f"{format_count(waiting)} of its jobs wait; no code here declares it"
                f"{f'; is {near!r} meant?' if near else '.'}",
                "They wait until a worker knows the type; nothing is lost.",
                f"{HOW_TO_DECLARE} Or deploy the code that declares it, or cancel the jobs in the "
                "admin.",
            )


def _throttlers(measured: Measured) -> Iterator[Finding]:
    for text in measured.throttler_problems:
        yield problem(
            "throttler_setting",
            f"instance {measured.instance}",
            text,
            "The queue is blocked for as long as one of its throttlers cannot be used.",
            "Correct THROTTLERS in the HIPQ setting, and restart the workers.",
        )


# Answers and old jobs


def _inbox(measured: Measured) -> Iterator[Finding]:
    inbox = measured.inbox
    is_old = inbox.oldest_early_seconds > inbox.ttl_seconds / 2
    if inbox.early > MANY_EARLY_ANSWERS or (inbox.early and is_old):
        yield warning(
            "early_answers",
            f"instance {measured.instance}",
            f"{format_count(inbox.early)} answers wait for a job with their key, the oldest for "
            f"{span(inbox.oldest_early_seconds)}.",
            f"After {span(inbox.ttl_seconds)} they count as unmatched, and their jobs time out.",
            "Compare the keys of the answers with those of the running jobs in the admin.",
        )
    yield from _without_job(inbox, f"instance {measured.instance}")


def _without_job(inbox: Inbox, where: str) -> Iterator[Finding]:
    if inbox.unmatched:
        yield warning(
            "unmatched_answers",
            where,
            f"{format_count(inbox.unmatched)} answers of the last day never found a job.",
            "The jobs that they were meant for, if any, time out.",
            "Look at them in the admin: is the key or the job type wrong, or are they irrelevant?",
        )
    if inbox.malformed:
        yield warning(
            "malformed_messages",
            where,
            f"{format_count(inbox.malformed)} messages of the last day were no answers.",
            "They are kept; the jobs that they were meant for, if any, time out.",
            "Look at them in the admin, under Answers: each shows its problem. Correct the map "
            "function, and let the broker deliver them again; for messages that are not for this "
            "project, let it return IGNORE.",
        )


def _schedules(measured: Measured) -> Iterator[Finding]:
    for row in measured.schedules:
        yield from _unfired(row, f"schedule {row.name}")
        yield from _in_vain(row, f"schedule {row.name}")


def _unfired(row: ScheduleState, where: str) -> Iterator[Finding]:
    if row.problem:
        yield problem(
            "schedule_problem",
            where,
            f"it cannot be fired: {row.problem}",
            "None of its jobs are made; other schedules are not affected.",
            "Correct the schedule; it is tried again each half minute.",
        )
    elif row.late_seconds >= OVERDUE_SECONDS:
        yield problem(
            "schedule_late",
            where,
            f"it has been due for {span(row.late_seconds)}.",
            "Its jobs are made once a worker runs.",
            "Start a worker of the instance, or see its log.",
        )


def _in_vain(row: ScheduleState, where: str) -> Iterator[Finding]:
    """Yield why a schedule makes fewer jobs than its times say."""
    if row.skipped >= SKIPS:
        yield warning(
            "schedule_skipping",
            where,
            f"its last {row.skipped} due times were skipped: a job was in the way each time, or "
            "its times were edited.",
            "It runs less often than its times say.",
            "Read the reasons on its page. See why that job does not end, or choose another "
            "overlap, or another key.",
        )
    if row.retired:
        yield warning(
            "schedule_retired",
            where,
            "no live worker's code declares it any more.",
            "None of its jobs are made.",
            "Delete it, or deploy the code that declares it.",
        )


def _unpruned(measured: Measured) -> Iterator[Finding]:
    if measured.unpruned:
        yield warning(
            "not_pruned",
            f"queue {', '.join(measured.unpruned)}",
            "final jobs are more than a day past their retention.",
            "The tables keep growing; backups and vacuum take longer.",
            f"Run {command('hipq_prune', instance=measured.instance)} each day, for example from "
            "cron.",
        )


def _edits(measured: Measured) -> Iterator[Finding]:
    for where, what in measured.edits.items():
        name = where.rpartition(" ")[2]
        yield note(
            "edited",
            where,
            f"{what}.",
            "An edit stays, whatever the setting and the code say.",
            f"Undo it by {command('hipq_sync', '--reset', name, instance=measured.instance)}",
        )


_RULES: tuple[Callable[[Measured], Iterator[Finding]], ...] = (
    _queues,
    _endings,
    _workers,
    _consumers,
    _stuck,
    _unknown_types,
    _throttlers,
    _inbox,
    _schedules,
    _unpruned,
    _edits,
)
