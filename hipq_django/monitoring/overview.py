"""The state of the queues in numbers, for `hipq_status` and `hipq_doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.domain.states import NONE
from hipq_django.domain.throttling import fits
from hipq_django.extensions import registered
from hipq_django.models import Answer, JobType, Queue, Worker
from hipq_django.models.worker import Trouble
from hipq_django.monitoring import counts
from hipq_django.monitoring.counts import capped_count, with_figures
from hipq_django.monitoring.endings import NO_TREND, Trend, Trends

LONG_SECONDS = 900.0
"""How long a job of a full queue is due, at least, before its answers are missed."""

QUIET_SECONDS = 3_600.0
"""For how long no job has ended in a queue that counts as quiet."""


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """One queue: its limits, and how many live jobs it has in which state.

    Nothing is counted beyond 10,000; 10,001 means more, and `capped` in JSON. `load` is the sum of
    the factors that run, without a limit of the first 10,001 jobs; `oldest_due_seconds` how long
    the longest waiting due job has been due, 0 where none is; `served` whether a worker whose heart
    beats, and that has a thread which is not held, runs its jobs.
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
    trend: Trend = NO_TREND
    next_factor: float = 0.0
    """What the first due job needs of the limit, 0 where none is due but critical ones."""
    share: float | None = None
    """What a shard has of the limit; None without shards."""
    quiet_seconds: float | None = None
    """How long ago the last job ended, in seconds; None for more than a day."""

    @property
    def is_full(self) -> bool:
        """Whether the next job does not fit beside the running ones, so that none may start."""
        if self.throttle_limit < 1:
            return False
        factor, load, limit, room = (
            Decimal(str(number))
            for number in (self.next_factor, self.load, self.throttle_limit, self.own_limit)
        )
        return load >= room or not fits(factor, load, limit, room)

    @property
    def own_limit(self) -> float:
        """What may run in this database: the share of a shard, otherwise the whole limit."""
        return self.throttle_limit if self.share is None else self.share

    @property
    def is_quiet(self) -> bool:
        """Whether jobs wait for answers, and none has ended for too long."""
        is_quiet = self.quiet_seconds is None or self.quiet_seconds >= QUIET_SECONDS
        return bool(self.awaiting_answer) and is_quiet

    @property
    def is_unanswered(self) -> bool:
        """Whether jobs that wait for answers fill the limit, and none has ended for too long."""
        return self.is_full and self.is_quiet and self.oldest_due_seconds >= LONG_SECONDS

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = _without_caps(asdict(self)) | self.trend.as_dict()
        values["problem"] = None if self.problem == NONE else self.problem
        values["unanswered"] = self.is_unanswered
        del values["trend"], values["next_factor"]
        if self.share is None:
            del values["share"]
        return values


@dataclass(frozen=True, slots=True)
class JobTypeEndings:
    """How the jobs of a type ended in the last hour, and usually do."""

    name: str
    queue: str
    trend: Trend

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"name": self.name, "queue": self.queue, **self.trend.as_dict()}


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A worker, or a consumer of a source, and what it has in flight: jobs or messages.

    `heartbeat_age_seconds` is the age of its last heartbeat; `silent` means that it counts as lost.
    """

    name: str
    source: str
    state: str
    queues: list[str]
    excluded_queues: list[str]
    threads: int
    in_flight: int
    heartbeat_age_seconds: float
    silent: bool
    troubles: list[Trouble] = field(default_factory=list)
    """The duties that fail, and what hangs."""

    def as_dict(self) -> dict[str, Any]:
        """Return what there is to say of a worker, or of a consumer, for JSON."""
        values = {**asdict(self), "troubles": [one._asdict() for one in self.troubles]}
        if self.source != NONE:
            del values["queues"], values["excluded_queues"], values["threads"]
        else:
            del values["source"]
            values["executing"] = values.pop("in_flight")
        return values


@dataclass(frozen=True, slots=True)
class Overview:
    """An instance at one moment; the last two are counted up to 10,000 too."""

    instance: str
    queues: list[QueueCounts]
    workers: list[ProcessState]
    consumers: list[ProcessState]
    unmatched_answers: int
    malformed_messages: int
    job_types: list[JobTypeEndings] = field(default_factory=list)
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    """What apps above the queue count, by what it is about."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: no count above 10,000, and no problem where none is."""
        answers = {
            "unmatched_answers": self.unmatched_answers,
            "malformed_messages": self.malformed_messages,
        }
        return {
            "instance": self.instance,
            **_without_caps(answers),
            "queues": [queue.as_dict() for queue in self.queues],
            "workers": [worker.as_dict() for worker in self.workers],
            "consumers": [consumer.as_dict() for consumer in self.consumers],
            "job_types": [row.as_dict() for row in self.job_types],
            **self.others,
        }


def _without_caps(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with counts that end at the bound; `capped` says whether one does."""
    limit = counts.COUNT_LIMIT
    cut = {name: limit for name, value in values.items() if type(value) is int and value > limit}
    return {**values, **cut, "capped": bool(cut)}


def take(config: InstanceSettings) -> Overview:
    """Return the overview of an instance: its live jobs, and how jobs have ended lately.

    The counts are bounded, however many rows there are.
    """
    using, now = config.database, clock.now(config.database)
    queues = list(with_figures(Queue.objects.using(using).filter(instance=config.name), now))
    types = JobType.objects.using(using).filter(instance=config.name).select_related("queue")
    trends = Trends(queues, now, using)
    live = Worker.objects.using(using).filter(instance=config.name, state__in=Worker.LIVE)
    processes = list(live)
    claiming = [w for w in processes if w.state == Worker.State.RUNNING and not w.is_silent(now)]
    unmatched = Answer.objects.using(using).filter(
        instance=config.name, status__in=[Answer.Status.UNMATCHED, Answer.Status.EARLY], job=None
    )
    return Overview(
        instance=config.name,
        queues=[queue_counts(queue, now, trends, claiming) for queue in queues],
        workers=[_state_of(worker, now) for worker in processes if not worker.is_consumer],
        consumers=[_state_of(worker, now) for worker in processes if worker.is_consumer],
        unmatched_answers=capped_count(unmatched.exclude(kind=Answer.Kind.MALFORMED)),
        malformed_messages=capped_count(unmatched.filter(kind=Answer.Kind.MALFORMED)),
        job_types=[JobTypeEndings(row.name, row.queue.name, trends.of(row)) for row in types],
        others={k: v for each in registered for k, v in each.counts(config).items()},
    )


def queue_counts(
    queue: Any, now: datetime, trends: Trends, workers: Sequence[Worker]
) -> QueueCounts:
    """Return the counts of a queue that `with_figures` has found; `workers` are live and claim."""
    oldest = now - queue.oldest_due if queue.oldest_due else timedelta()
    return QueueCounts(
        name=queue.name,
        throttle_limit=float(queue.throttle_limit) if queue.is_limited else 0.0,
        order=queue.order,
        paused=queue.paused,
        served=any(worker.serves(queue) and not worker.is_held for worker in workers),
        due=queue.due_count,
        scheduled=queue.scheduled_count,
        running=queue.running_count,
        awaiting_answer=queue.awaiting_count,
        in_error=queue.error_count,
        load=float(queue.load or 0),
        oldest_due_seconds=round(oldest.total_seconds(), 3),
        # Nobody asks throttlers while nothing is due, so what was noted last may be over.
        problem=queue.throttler_problem if queue.due_count else NONE,
        trend=trends.of(queue),
        next_factor=float(queue.next_factor or 0),
        share=None if queue.share is None else float(queue.share),
        quiet_seconds=trends.quiet_seconds(queue),
    )


def _state_of(worker: Worker, now: datetime) -> ProcessState:
    return ProcessState(
        name=worker.name,
        source=worker.source,
        state=worker.state,
        queues=worker.queues,
        excluded_queues=worker.excluded_queues,
        threads=worker.threads,
        in_flight=worker.executing,
        heartbeat_age_seconds=round(max(0.0, (now - worker.heartbeat_time).total_seconds()), 3),
        silent=worker.is_silent(now),
        troubles=worker.troubles_at(now),
    )
