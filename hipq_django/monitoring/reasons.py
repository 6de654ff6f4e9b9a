"""Why a job is not running: the answer that an operator needs first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from asgiref.sync import sync_to_async
from django.db import DatabaseError, transaction
from django.db.models import Q
from django.utils import timezone

from hipq_django.answers import aggregation
from hipq_django.conf.instances import get_throttlers
from hipq_django.database import clock
from hipq_django.database.errors import in_one_line
from hipq_django.domain import throttling
from hipq_django.domain.states import State
from hipq_django.domain.suspects import is_suspect
from hipq_django.domain.windows import is_open, next_opening, parse_windows
from hipq_django.exceptions import ConfigurationError, InvalidJobError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Attempt, Job, Worker


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a job is not running; `code` is stable, `text` is for people."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


def explain(job: Job) -> list[Reason]:
    """Return why `job` is not running, the most decisive reason first.

    Empty for a waiting job that the next pass of a worker will start, and for one whose handler
    is executing. The row is read anew, nothing is changed.
    """
    row = Job.objects.using(job.using).select_related("queue", "job_type", "worker").get(pk=job.pk)
    return list(_reasons(row, clock.now(job.using)))


aexplain = sync_to_async(explain)


def _reasons(job: Job, now: datetime) -> Iterator[Reason]:
    if job.state == State.FINAL:
        yield Reason(
            "final", f"It is finished: {job.get_outcome_display()} at {_at(job.update_time)}."
        )
    elif job.state == State.RUNNING:
        yield from _running(job, now)
    elif job.state == State.ERROR:
        yield from _unserved(job, now)
        error = job.masked(job.error)
        yield Reason("error", f"It failed ({error}) and its retry handler has not decided yet.")
    else:
        yield from _waiting(job, now)


def _running(job: Job, now: datetime) -> Iterator[Reason]:
    if job.worker_id is not None:
        if job.prefetched:
            yield Reason("prefetched", f"Worker {job.worker} claimed it ahead and starts it next.")
        return
    if job.has_pending_answer:
        yield from _unserved(job, now)
        yield Reason("answered", "Its answer is in; a worker will run the response handler.")
        return
    parts = aggregation.progress_of(job)
    waits = f"waits: {parts}" if parts else "waits for the answer"
    late = "was due" if job.deadline < now else "times out"
    yield Reason(
        "waiting_for_answer",
        f"Attempt {job.attempt} sent its request and {waits}; it {late} at "
        f"{_when(job.deadline, now)}.",
    )


def _waiting(job: Job, now: datetime) -> Iterator[Reason]:
    yield from _unserved(job, now)
    if job.queue.paused:
        yield Reason("paused", f"Queue {job.queue} is paused.")
    if job.scheduled_run_time > now:
        yield Reason("scheduled", f"It is scheduled for {_when(job.scheduled_run_time, now)}.")
    if not job.has_pending_answer:
        yield from _outside_windows(job, now)
        yield from _held(job, now)
    yield from _suspected(job)
    if job.queue.is_limited:
        yield from _limited(job)
        yield from _behind(job, now)


def _suspected(job: Job) -> Iterator[Reason]:
    if not is_suspect(job.error):
        return
    workers = [worker.pk for worker in _serving(job)]
    losses = Attempt.objects.using(job.using).of_suspects(workers)
    if len(set(losses.values_list("job__worker", flat=True))) == len(workers) > 0:
        yield Reason(
            "suspect",
            "It was executing when a worker died, and may have killed it; each worker is executing "
            "another such job, and takes one at a time.",
        )


def _serving(job: Job) -> list[Worker]:
    workers = Worker.objects.using(job.using).filter(
        instance=job.queue.instance, state=Worker.State.RUNNING
    )
    return [worker for worker in workers if worker.serves(job.queue)]


def _unserved(job: Job, now: datetime) -> Iterator[Reason]:
    if get_declared(job.queue.instance, job.job_type.name) is None:
        yield Reason(
            "unknown_type",
            f"Nobody declares job type {job.job_type.name!r} in this project's code; it waits "
            "until a worker knows it.",
        )
    serving = _serving(job)
    if not serving:
        yield Reason(
            "no_worker",
            f"No worker serves queue {job.queue}; start one: "
            f"manage.py hipq_worker {job.queue.name}.",
        )
    elif all(worker.is_silent(now) for worker in serving):
        yield Reason(
            "silent_workers", f"No worker of queue {job.queue} has sent a heartbeat lately."
        )


def _outside_windows(job: Job, now: datetime) -> Iterator[Reason]:
    try:
        windows, zone = parse_windows(job.time_windows), job.job_type.zone
    except (InvalidJobError, ConfigurationError) as error:
        yield Reason("window_error", f"Its time windows cannot be read here: {in_one_line(error)}")
        return
    if windows and not is_open(windows, now, zone):
        opening = next_opening(windows, now, zone).astimezone(zone)
        yield Reason(
            "window",
            f"Its time windows ({', '.join(job.time_windows)} {zone}) are closed until "
            f"{opening:%Y-%m-%d %H:%M:%S %Z}.",
        )


def _held(job: Job, now: datetime) -> Iterator[Reason]:
    queue = job.queue
    running: list[Job] = []
    try:
        throttlers = get_throttlers(queue.instance, queue.name)
        if throttlers:
            running = list(queue.jobs.using(queue.using).running().select_related("job_type"))
        loads = [throttling.running_job_of(other) for other in running]
        candidates = [throttling.candidate_of(job)]
        with transaction.atomic(using=job.using):
            verdict = throttling.ask(throttlers, queue, now, loads, candidates)[job.pk]
    except (throttling.ThrottlerError, ConfigurationError, DatabaseError) as error:
        text = _masked(in_one_line(error), job, running)
        yield Reason("throttler_error", f"The queue is held, because {text}")
        return
    if isinstance(verdict, throttling.Hold):
        reason = _masked(verdict.reason, job, running)
        yield Reason("throttler", f"A throttler holds it: {reason}.")
    elif isinstance(verdict, throttling.Reschedule):
        reason = _masked(verdict.reason, job, running) or "no reason"
        yield Reason("throttler", f"A throttler moves it to {_at(verdict.at)}: {reason}.")


def _masked(text: str, job: Job, running: list[Job]) -> str:
    """A throttler may quote the job that it was asked about, and those that run."""
    text = job.masked_reason(str(text))
    for other in running:
        text = other.masked(text)
    return text


def _limited(job: Job) -> Iterator[Reason]:
    queue = job.queue
    load = queue.jobs.using(job.using).load()
    if not throttling.fits(job.throttle_factor, load, queue.throttle_limit):
        yield Reason(
            "limit",
            f"The limit of queue {queue} is reached: {_plain(load)} of "
            f"{_plain(queue.throttle_limit)} running; "
            f"this job needs {_plain(job.throttle_factor)}.",
        )


def _behind(job: Job, now: datetime) -> Iterator[Reason]:
    if job.scheduled_run_time > now or job.throttle_factor == 0:
        return
    before = Q(rank__lt=job.rank) | Q(rank=job.rank, pk__lt=job.pk)
    due = job.queue.jobs.using(job.using).due(now).filter(before, throttle_factor__gt=0)
    count = len(due.values_list("pk")[:1_000])
    if count:
        number = "1,000 or more" if count == 1_000 else f"{count:,}"
        yield Reason("behind", f"{number} due jobs of the queue are before it.")


def _at(moment: datetime) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def _when(moment: datetime, now: datetime) -> str:
    seconds = round((moment - now).total_seconds())
    span = timedelta(seconds=abs(seconds))
    return f"{_at(moment)} (in {span})" if seconds >= 0 else f"{_at(moment)} ({span} ago)"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
