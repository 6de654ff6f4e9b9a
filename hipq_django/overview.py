"""What stands in the queues, counted: for `hipq_status` and the admin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Min, Sum

from hipq_django import clock
from hipq_django.models import Answer, Queue, Worker

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.conf import InstanceSettings


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue: its limits and how many live jobs stand where.

    `load` is the sum of the factors that run; `oldest_due_seconds` how long the longest waiting
    due job has been due, 0 where none is.
    """

    name: str
    throttle_limit: float
    order: str
    paused: bool
    due: int
    scheduled: int
    running: int
    awaiting_answer: int
    in_error: int
    load: float
    oldest_due_seconds: float
    problem: str


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker and how many seconds ago its heart beat."""

    name: str
    state: str
    queues: list[str]
    threads: int
    executing: int
    heartbeat_age_seconds: float


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One process that reads messages from a source, and how many it has in hand."""

    name: str
    source: str
    state: str
    in_hand: int
    heartbeat_age_seconds: float


@dataclass(frozen=True, slots=True)
class Overview:
    """An instance at one moment."""

    instance: str
    queues: list[QueueCounts]
    workers: list[WorkerState]
    consumers: list[ConsumerState]
    unmatched_answers: int
    malformed_messages: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def look(config: InstanceSettings) -> Overview:
    """Count the live jobs of an instance; final jobs are not touched, however many there are."""
    using, now = config.database, clock.now(config.database)
    queues = Queue.objects.using(using).filter(instance=config.name)
    live = Worker.objects.using(using).filter(instance=config.name, state__in=Worker.LIVE)
    unmatched = Answer.objects.using(using).filter(
        instance=config.name, status__in=[Answer.Status.UNMATCHED, Answer.Status.EARLY], job=None
    )
    malformed = unmatched.filter(kind=Answer.Kind.MALFORMED)
    return Overview(
        instance=config.name,
        queues=[count(queue, now) for queue in queues],
        workers=[_worker_state(worker, now) for worker in live.serving_queues()],
        consumers=[_consumer_state(consumer, now) for consumer in live.consumers()],
        unmatched_answers=unmatched.exclude(kind=Answer.Kind.MALFORMED).count(),
        malformed_messages=malformed.count(),
    )


def count(queue: Queue, now: datetime) -> QueueCounts:
    """Count the live jobs of one queue."""
    jobs = queue.jobs.using(queue.using)
    due = jobs.due(now).aggregate(number=Count("pk"), oldest=Min("scheduled_run_time"))
    running = jobs.running()
    load = running.aggregate(number=Count("pk"), factors=Sum("throttle_factor"))
    oldest = now - due["oldest"] if due["oldest"] else timedelta()
    return QueueCounts(
        name=queue.name,
        throttle_limit=float(queue.throttle_limit),
        order=queue.order,
        paused=queue.paused,
        due=due["number"],
        scheduled=jobs.waiting().filter(scheduled_run_time__gt=now).count(),
        running=load["number"],
        awaiting_answer=running.filter(worker=None, answered=False).count(),
        in_error=jobs.in_error().count(),
        load=float(load["factors"] or 0),
        oldest_due_seconds=round(oldest.total_seconds(), 3),
        problem=queue.throttler_problem,
    )


def _worker_state(worker: Worker, now: datetime) -> WorkerState:
    return WorkerState(
        name=worker.name,
        state=worker.state,
        queues=worker.queues,
        threads=worker.threads,
        executing=worker.executing,
        heartbeat_age_seconds=_age(worker, now),
    )


def _consumer_state(worker: Worker, now: datetime) -> ConsumerState:
    return ConsumerState(
        name=worker.name,
        source=worker.source,
        state=worker.state,
        in_hand=worker.executing,
        heartbeat_age_seconds=_age(worker, now),
    )


def _age(worker: Worker, now: datetime) -> float:
    return round((now - worker.heartbeat_time).total_seconds(), 3)
