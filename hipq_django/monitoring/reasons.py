"""Why a job is not running: the answer that an operator needs first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal

from django.db import DatabaseError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _, ngettext

from hipq_django.answers import aggregation
from hipq_django.conf.instances import get_throttlers
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.errors import in_one_line
from hipq_django.domain import throttling
from hipq_django.domain.dependencies import PART
from hipq_django.domain.reasons import Reason, concerns
from hipq_django.domain.states import NONE, Outcome, State
from hipq_django.domain.suspects import is_suspect
from hipq_django.domain.windows import is_open, next_opening, parse_windows
from hipq_django.engines import engine_for
from hipq_django.exceptions import ConfigurationError, InvalidJobError
from hipq_django.job_types.registry import find_declared
from hipq_django.models import Attempt, Job, Link, Worker
from hipq_django.models.base import title
from hipq_django.models.masking import said_by_throttlers, shown
from hipq_django.models.naming import Keyed, job_of, pruned, twin, verb
from hipq_django.monitoring.commands import command
from hipq_django.transitions.history import failure_after
from hipq_django.transitions.reports import why_given_up

MAX_NAMED = 5
"""How many of the jobs that one waits for are named."""

MAX_BEFORE = 1_000
"""How many of the jobs before one are counted."""

LATE = timedelta(seconds=5)
"""From when on a due job that nothing holds should have started."""


@verb
def explain(
    job: Job | Keyed, *, instance: str = DEFAULT, shard_key: str | None = None
) -> list[Reason]:
    """Return why `job` is not running, the most decisive reason first.

    Empty for a waiting job that the next pass of a worker will start, and for one whose handler
    is executing in time. What threads do is known from the last heartbeats of their workers. The
    row is read anew, nothing is changed.
    """
    asked = job_of(job, instance)
    rows = Job.objects.using(asked.using).select_related("queue", "job_type", "worker")
    row = rows.row_of(asked).first()
    if row is None:
        raise pruned(asked)
    return list(_reasons(row, clock.now(asked.using)))


aexplain = twin(explain)


def _reasons(job: Job, now: datetime) -> Iterator[Reason]:
    if job.state == State.FINAL:
        text = _("It is finished: %(outcome)s at %(time)s.")
        outcome = job.get_outcome_display()
        yield _reason("final", text, outcome=outcome, time=_at(job.update_time))
        yield from given_up(job, job.attempts.order_by("attempt").last())
    elif job.state == State.RUNNING:
        yield from _running(job, now)
    elif job.state == State.ERROR:
        yield from _unserved(job, _serving(job), now)
        text = _("It failed (%(error)s), and no worker has decided yet what follows.")
        yield _reason("error", text, error=shown(job, job.error))
    else:
        yield from list(_waiting(job, now)) or _late(job, now)


def given_up(job: Job, last: Attempt | None) -> Iterator[Reason]:
    """Say why a final job was not tried again after its last failed attempt, if it failed by it."""
    if last is None or job.outcome not in (Outcome.FAILED, Outcome.TIMED_OUT):
        return
    failure = failure_after(last)
    is_said = last.why_not_again != NONE
    why = last.why_not_again if is_said else why_given_up(job.job_type)
    text = _("It was not tried again, because %(why)s; failed attempts: %(count)s.")
    yield _reason("given_up", text, count=failure.count, why=shown(job, why))


def _running(job: Job, now: datetime) -> Iterator[Reason]:
    if job.worker is not None:
        yield from _taken(job, job.worker, now)
        return
    if job.has_pending_answer:
        yield from _unserved(job, _serving(job), now)
        yield Reason("answered", _("Its answer has come; a worker will run the response handler."))
        return
    live = Job.objects.using(job.using).live()
    gathered = _links(job).filter(on=PART, needs_job__in=live)
    if gathered.exists():
        yield _waits_for_jobs(gathered)
    else:
        yield Reason("waiting_for_answer", _waits_for_answer(job, now))


def _taken(job: Job, worker: Worker, now: datetime) -> Iterator[Reason]:
    if worker.state not in Worker.LIVE or worker.is_silent(now):
        text = _("Worker %(worker)s, which has it, has sent no heartbeat lately.")
        yield _reason("silent_workers", text, worker=worker)
    elif job.prefetched:
        text = _("Worker %(worker)s claimed it ahead and starts it next.")
        yield _reason("prefetched", text, worker=worker)
    elif job.deadline < now:
        text = _("Attempt %(attempt)s had time until %(time)s, and is about to time out.")
        yield _reason("overdue", text, attempt=job.attempt, time=when(job.deadline, now))


def _waits_for_answer(job: Job, now: datetime) -> str:
    text = _("Attempt %(attempt)s sent its request; its answer has time until %(time)s.")
    parts = aggregation.progress_of(job)
    said = text % {"attempt": job.attempt, "time": when(job.deadline, now)}
    return f"{said} ({parts})" if parts else said


def _waiting(job: Job, now: datetime) -> Iterator[Reason]:
    serving = _serving(job)
    yield from _unserved(job, serving, now)
    if job.queue.paused:
        yield Reason("paused", _("Queue %(queue)s is paused.") % {"queue": job.queue})
    if job.hold_time is not None:
        yield _waits_for_jobs(_links(job))
        return
    if job.scheduled_run_time > now:
        text = _("It is scheduled for %(time)s.")
        yield _reason("scheduled", text, time=when(job.scheduled_run_time, now))
    if not job.has_pending_answer:
        yield from _outside_windows(job, now)
        yield from _held(job, now)
    yield from _suspected(job, serving)
    yield from _in_line(job, serving, now)


def _late(job: Job, now: datetime) -> Iterator[Reason]:
    """What to say where nothing holds a job, and yet nobody has started it."""
    if now - max(job.scheduled_run_time, job.update_time) >= LATE:  # what held it may just be gone
        text = _("It was due at %(time)s, and nothing known here holds it: see the workers' log.")
        yield _reason("late", text, time=when(job.scheduled_run_time, now))


def _links(job: Job) -> QuerySet[Link]:
    return Link.objects.using(job.using).filter(job=job).order_by("pk")


def _waits_for_jobs(links: QuerySet[Link]) -> Reason:
    left = links.exclude(needs_job__state=State.FINAL).select_related("needs_job", "needs_batch")
    rows = [link.needs_job or link.needs_batch for link in left[: MAX_NAMED + 1]]
    names = [title(row) for row in rows if row is not None]
    named = ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
    text = _("It waits until these have ended: %(jobs)s.")
    return _reason("waits_for_jobs", text, jobs=named or _("none is left"))


def _suspected(job: Job, serving: Sequence[Worker]) -> Iterator[Reason]:
    if not is_suspect(job.error):
        return
    workers = [worker.pk for worker in serving]
    losses = Attempt.objects.using(job.using).of_suspects(workers)
    if len(set(losses.values_list("job__worker", flat=True))) == len(workers) > 0:
        yield Reason(
            "suspect",
            _(
                "It is a suspect: it was on two workers that were lost, and may have killed them. "
                "Each worker is executing another suspect, and takes one at a time."
            ),
        )


def _serving(job: Job) -> list[Worker]:
    workers = Worker.objects.using(job.using).filter(
        instance=job.queue.instance, state=Worker.State.RUNNING
    )
    return [worker for worker in workers if worker.serves(job.queue)]


def _unserved(job: Job, serving: Sequence[Worker], now: datetime) -> Iterator[Reason]:
    if find_declared(job.queue.instance, job.job_type.name, job.job_type.kind) is None:
        text = _(
            "No code of this project declares job type '%(name)s'. Declare it in the module jobs "
            "of an app, or add its module to AUTODISCOVER. If it was renamed, give the new one "
            "aliases= with the former name."
        )
        yield _reason("unknown_type", text, name=job.job_type.name)
    if not serving:
        text = _("No worker serves queue %(queue)s; start one: %(command)s.")
        start = command("hipq_worker", job.queue.name, instance=job.queue.instance)
        yield _reason("no_worker", text, queue=job.queue, command=start)
    elif all(worker.is_silent(now) for worker in serving):
        text = _("No worker of queue %(queue)s has sent a heartbeat lately.")
        yield _reason("silent_workers", text, queue=job.queue)
    else:
        yield from _held_threads([one for one in serving if not one.is_silent(now)], now)


def _held_threads(alive: Sequence[Worker], now: datetime) -> Iterator[Reason]:
    """Name what holds threads if none is free: the others may be executing other jobs."""
    if not _has_free_thread(alive):
        held = [(row, one) for row in alive for one in row.troubles_at(now) if one.name == row.HELD]
        for worker, one in held:
            text = _("Worker %(worker)s, since %(time)s: %(reason)s.")
            since = _at(now - timedelta(seconds=one.seconds))
            yield _reason("threads_held", text, worker=worker, time=since, reason=one.reason)


def _outside_windows(job: Job, now: datetime) -> Iterator[Reason]:
    try:
        windows, zone = parse_windows(job.time_windows), job.job_type.zone
    except (InvalidJobError, ConfigurationError) as error:
        text = _("Its time windows cannot be read here: %(error)s")
        yield _reason("window_error", text, error=in_one_line(error))
        return
    if windows and not is_open(windows, now, zone):
        opening = next_opening(windows, now, zone)
        text = _("Its time windows (%(windows)s) are closed until %(time)s.")
        given = f"{', '.join(job.time_windows)} {zone}"
        yield _reason("window", text, windows=given, time=_in_both(opening, zone))


def _in_both(moment: datetime, zone: tzinfo) -> str:
    """Return a moment in the current time zone, and in another one where that differs."""
    there = f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"
    here = _at(moment)
    return here if here == there else f"{here} ({there})"


def _held(job: Job, now: datetime) -> Iterator[Reason]:
    queue = job.queue
    problem, is_due = queue.throttler_problem, job.scheduled_run_time <= now
    if is_due and problem != NONE and concerns(problem, job.pk):
        # As workers saw it; throttlers that fail or hang are not asked once more.
        text = _("The queue is blocked, because %(error)s")
        yield _reason("throttler_error", text, error=problem)
        return
    running: list[throttling.RunningJob] = []
    try:
        throttlers = get_throttlers(queue.instance, queue.name)
        if not throttlers:
            return
        running = engine_for(job.using).running(queue, throttlers)
        candidates = [throttling.candidate_of(job)]
        with transaction.atomic(using=job.using):
            verdict = throttling.ask(throttlers, queue, now, running, candidates)[job.pk]
    except (throttling.ThrottlerError, ConfigurationError, DatabaseError) as error:
        text = _("The queue is blocked, because %(error)s")
        said = in_one_line(error, lambda said: said_by_throttlers(said, [job], running, queue))
        yield _reason("throttler_error", text, error=said)
        return
    if isinstance(verdict, throttling.Hold | throttling.Reschedule):
        reason = said_by_throttlers(str(verdict.reason), [job], running, queue)
        yield Reason("throttler", _verdict(verdict, reason))


def _verdict(verdict: throttling.Hold | throttling.Reschedule, reason: str) -> str:
    if isinstance(verdict, throttling.Hold):
        return _("A throttler holds it: %(reason)s.") % {"reason": reason}
    text = _("A throttler moves it to %(time)s: %(reason)s.")
    return text % {"time": _at(verdict.at), "reason": reason or _("no reason")}


def _in_line(job: Job, serving: Sequence[Worker], now: datetime) -> Iterator[Reason]:
    if job.queue.is_limited:
        yield from _limited(job)
    if job.scheduled_run_time <= now:
        yield from _behind(job, now)
        yield from _busy(job, serving, now)


def _limited(job: Job) -> Iterator[Reason]:
    queue = job.queue
    load = queue.jobs.using(job.using).load()
    if not throttling.fits(job.throttle_factor, load, queue.throttle_limit, queue.share):
        text = _(
            "The limit of queue %(queue)s is reached: %(load)s of %(limit)s running; this job "
            "needs %(factor)s."
        )
        if queue.share is not None:
            text = _(
                "The share that this shard has of the limit of queue %(queue)s is used up: "
                "%(load)s of %(limit)s running; this job needs %(factor)s."
            )
        limit, factor = _plain(queue.own_limit), _plain(job.throttle_factor)
        yield _reason("limit", text, queue=queue, load=_plain(load), limit=limit, factor=factor)


def _behind(job: Job, now: datetime) -> Iterator[Reason]:
    before = Q(rank__lt=job.rank) | Q(rank=job.rank, pk__lt=job.pk)
    due = job.queue.jobs.using(job.using).due(now).filter(before)
    if job.queue.is_limited:  # which critical jobs overtake
        if job.throttle_factor == 0:
            return
        due = due.filter(throttle_factor__gt=0)
    if count := len(due.values_list("pk")[:MAX_BEFORE]):
        text = ngettext(
            "%(count)s due job of the queue is ahead of it.",
            "%(count)s due jobs of the queue are ahead of it.",
            count,
        )
        more = "+" if count == MAX_BEFORE else ""
        yield _reason("behind", text, count=number_format(count, force_grouping=True) + more)


def _busy(job: Job, serving: Sequence[Worker], now: datetime) -> Iterator[Reason]:
    alive = [worker for worker in serving if not worker.is_silent(now)]
    if not (_has_free_thread(alive) or all(worker.is_held for worker in alive)):
        count = sum(worker.threads for worker in alive)
        text = ngettext(
            "The only thread that serves queue %(queue)s is executing another job.",
            "All %(count)s threads that serve queue %(queue)s are executing other jobs.",
            count,
        )
        said = number_format(count, force_grouping=True)
        yield _reason("busy", text, count=said, queue=job.queue)


def _has_free_thread(workers: Iterable[Worker]) -> bool:
    return any(worker.executing < worker.threads for worker in workers)


def _reason(code: str, text: str, **values: object) -> Reason:
    return Reason(code, text % values)


def _at(moment: datetime) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def when(moment: datetime, now: datetime) -> str:
    """Return a moment, and how far away it is."""
    seconds = round((moment - now).total_seconds())
    span = _span(timedelta(seconds=abs(seconds)))
    text = _("%(time)s (in %(span)s)") if seconds >= 0 else _("%(time)s (%(span)s ago)")
    return text % {"time": _at(moment), "span": span}


def _span(length: timedelta) -> str:
    hours = str(timedelta(seconds=length.seconds))
    if not length.days:
        return hours
    days = ngettext("%(count)s day", "%(count)s days", length.days) % {"count": length.days}
    return f"{days}, {hours}"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
