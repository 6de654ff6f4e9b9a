"""Rows in any state, written as they are: no scheduler, no check but those of the database."""

# factory-boy ships types for its factories only.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connection
from factory.declarations import (
    LazyAttribute,
    LazyFunction,
    SelfAttribute,
    Sequence,
    SubFactory,
    Trait,
)
from factory.django import DjangoModelFactory

from hipq_django.database import clock
from hipq_django.domain.ordering import Ordering
from hipq_django.domain.states import Outcome, Phase, State
from hipq_django.models import Answer, Attempt, Batch, Job, JobType, Queue, Schedule, Worker


def _now(_: Any = None) -> Any:
    return clock.now("default")


class QueueFactory(DjangoModelFactory[Queue]):
    """An unlimited queue in the order of time."""

    class Meta:
        model = Queue

    name = Sequence("queue_{}".format)
    order = Queue.Order.TIME
    ranking = LazyAttribute(lambda queue: Ordering(queue.order).as_ranking())


class JobTypeFactory(DjangoModelFactory[JobType]):
    """A job type without code, in a queue of its own."""

    class Meta:
        model = JobType

    name = Sequence("type_{}".format)
    queue = SubFactory(QueueFactory)


class BatchFactory(DjangoModelFactory[Batch]):
    """A batch without jobs."""

    class Meta:
        model = Batch

    name = Sequence("batch_{}".format)


class ScheduleFactory(DjangoModelFactory[Schedule]):
    """A schedule that was made by hand, and is due at each full hour."""

    class Meta:
        model = Schedule

    name = Sequence("schedule_{}".format)
    job_type = SubFactory(JobTypeFactory)
    cron = "0 * * * *"


class WorkerFactory(DjangoModelFactory[Worker]):
    """A worker that serves all queues and has just sent a heartbeat."""

    class Meta:
        model = Worker

    class Params:
        silent = Trait(heartbeat_time=LazyFunction(lambda: _now() - timedelta(hours=1)))

    name = Sequence("worker_{}".format)
    heartbeat_time = LazyFunction(_now)


def _phase_of(worker: Worker | None, state: str) -> Phase:
    if worker is None:
        return Phase.NONE
    return Phase.DECISION if state == State.ERROR else Phase.REQUEST


class JobFactory(DjangoModelFactory[Job]):
    """A job that is due: initial, unless another `state` is given; its other fields follow."""

    class Meta:
        model = Job

    job_type = SubFactory(JobTypeFactory)
    queue = SelfAttribute("job_type.queue")
    scheduled_run_time = LazyFunction(_now)
    create_time = LazyFunction(_now)
    update_time = LazyFunction(_now)
    deadline = LazyFunction(lambda: _now() + timedelta(days=1))
    error = LazyAttribute(lambda job: "boom" if job.state in (State.ERROR, State.RETRY) else "NONE")
    attempt = LazyAttribute(lambda job: 0 if job.state == State.INITIAL else 1)
    outcome = LazyAttribute(
        lambda job: Outcome.SUCCEEDED if job.state == State.FINAL else Outcome.NONE
    )
    state = State.INITIAL
    worker: Any = None
    phase = LazyAttribute(lambda job: _phase_of(job.worker, job.state))
    rank = LazyAttribute(lambda job: job.queue.ordering.rank(job.scheduled_run_time, job.priority))
    priority = 100


class AttemptFactory(DjangoModelFactory[Attempt]):
    """A failed attempt."""

    class Meta:
        model = Attempt

    job = SubFactory(JobFactory)
    attempt = 1
    error = "boom"


class AnswerFactory(DjangoModelFactory[Answer]):
    """An answer for which there was no job yet."""

    class Meta:
        model = Answer

    job_type = "ask"
    job_key = Sequence("key-{}".format)
    kind = Answer.Kind.RESPONSE
    payload: Any = "yes"
    status = Answer.Status.EARLY
    receive_time = LazyFunction(_now)


def insert_copy(job: Job, **columns: int) -> None:
    """Insert a copy of a job by SQL, with other values in some columns."""
    names = [str(field.column) for field in Job._meta.concrete_fields if field.column != "id"]
    values = [str(columns.get(name, name)) for name in names]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO hipq_job ({', '.join(names)}) SELECT {', '.join(values)} "
            "FROM hipq_job WHERE id = %s",
            [job.pk],
        )
