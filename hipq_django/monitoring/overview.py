"""What stands in the queues, counted: for `hipq_status` and `hipq_doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hipq_django.database import clock
from hipq_django.domain.states import NONE
from hipq_django.models import Answer, Queue, Worker
from hipq_django.monitoring import counts
from hipq_django.monitoring.counts import capped_count, is_served, with_figures

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.conf.instances import InstanceSettings


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue: its limits and how many live jobs stand where.

    Nothing is counted beyond 10,000; 10,001 means more, and `capped` in JSON. `load` is the sum of
    the factors that run, of the first 10,001 jobs; `oldest_due_seconds` how long the longest
    waiting due job has been due, 0 where none is; `served` whether a worker whose heart beats runs
    its jobs.
    """

    name: str
    throttle_limit: float
    order: str
    paused: bool
    served: bool
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
    """One worker and how many seconds ago its heart beat; `silent` means that it counts as lost."""

    name: str
    state: str
    queues: list[str]
    threads: int
    executing: int
    heartbeat_age_seconds: float
    silent: bool


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """One process that reads messages from a source, and how many it has in flight."""

    name: str
    source: str
    state: str
    in_flight: int
    heartbeat_age_seconds: float
    silent: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """An instance at one moment; the last two are counted up to 10,000 too."""

    instance: str
    queues: list[QueueCounts]
    workers: list[WorkerState]
    consumers: list[ConsumerState]
    unmatched_answers: int
    malformed_messages: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: no count above 10,000, and no problem where none is."""
        values = _without_caps(asdict(self))
        for queue in values["queues"]:
            queue["problem"] = None if queue["problem"] == NONE else queue["problem"]
        return {**values, "queues": [_without_caps(queue) for queue in values["queues"]]}


def _without_caps(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with counts that end at the bound; `capped` says whether one does."""
    cut = {name: counts.COUNT_LIMIT for name, value in values.items() if _is_capped(value)}
    return {**values, **cut, "capped": bool(cut)}


def _is_capped(value: Any) -> bool:
    return type(value) is int and value > counts.COUNT_LIMIT


def look(config: InstanceSettings) -> Overview:
    """Count the live jobs of an instance.

    Final jobs are not touched, and what is counted is bounded, however many rows there are.
    """
    using, now = config.database, clock.now(config.database)
    queues = with_figures(Queue.objects.using(using).filter(instance=config.name), now)
    live = Worker.objects.using(using).filter(instance=config.name, state__in=Worker.LIVE)
    processes = list(live)
    claiming = [w for w in processes if w.state == Worker.State.RUNNING and not w.is_silent(now)]
    unmatched = Answer.objects.using(using).filter(
        instance=config.name, status__in=[Answer.Status.UNMATCHED, Answer.Status.EARLY], job=None
    )
    malformed = unmatched.filter(kind=Answer.Kind.MALFORMED)
    return Overview(
        instance=config.name,
        queues=[_queue_counts(queue, now, served=is_served(queue, claiming)) for queue in queues],
        workers=[_worker_state(worker, now) for worker in processes if not worker.is_consumer],
        consumers=[_consumer_state(worker, now) for worker in processes if worker.is_consumer],
        unmatched_answers=capped_count(unmatched.exclude(kind=Answer.Kind.MALFORMED)),
        malformed_messages=capped_count(malformed),
    )


def _queue_counts(queue: Any, now: datetime, *, served: bool) -> QueueCounts:
    oldest = now - queue.oldest_due if queue.oldest_due else timedelta()
    return QueueCounts(
        name=queue.name,
        throttle_limit=float(queue.throttle_limit) if queue.is_limited else 0.0,
        order=queue.order,
        paused=queue.paused,
        served=served,
        due=queue.due_count,
        scheduled=queue.scheduled_count,
        running=queue.running_count,
        awaiting_answer=queue.awaiting_count,
        in_error=queue.error_count,
        load=float(queue.load or 0),
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
        silent=worker.is_silent(now),
    )


def _consumer_state(worker: Worker, now: datetime) -> ConsumerState:
    return ConsumerState(
        name=worker.name,
        source=worker.source,
        state=worker.state,
        in_flight=worker.executing,
        heartbeat_age_seconds=_age(worker, now),
        silent=worker.is_silent(now),
    )


def _age(worker: Worker, now: datetime) -> float:
    return round((now - worker.heartbeat_time).total_seconds(), 3)
