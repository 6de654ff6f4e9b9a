"""No duty of a worker waits for a row that somebody has locked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Answer, Job, Queue, Schedule, Worker
from hipq_django.processes.heartbeat import Heartbeat, Witness
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.own_threads import ResultWriter
from hipq_django.processes.worker import WorkerProcess
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.schedules import declared
from hipq_django.schedules.firing import Firing
from tests.concurrency.sessions import PATIENCE_SECONDS, Session
from tests.declaring import Declare
from tests.factories import AnswerFactory, WorkerFactory
from tests.hand_worker import HandWorker
from tests.processes.conftest import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of rows"),
]

LIMIT_SECONDS = 20.0
"""Who waits for a row here waits until the test ends; who is only slow is done before."""


class Process(WorkerProcess):
    """A worker process whose duties a test does one by one."""

    def __init__(self) -> None:
        super().__init__(WorkerOptions(threads=1))
        self.worker = WorkerFactory.create()
        self.heartbeat = Heartbeat(self.worker, dict, lambda: None)
        self.heartbeat.unbroken_since -= self.worker.silence.total_seconds()
        self._witness = Witness(self.config, self.heartbeat)
        self._firing = Firing(self.config)
        self.scheduler = BatchScheduler(self.worker, self.pool)
        self.duties = {duty.name: duty for duty in self._make_duties()}


@pytest.fixture
def process() -> Process:
    return Process()


def now() -> Any:
    return clock.now("default")


# What each duty would do, and how often the database then says that it was done


Prepare = Callable[[Process, Declare], tuple[Any, Callable[[], int]]]


def time_out_overdue(process: Process, declare: Declare) -> Any:
    hipq.enqueue("echo", timeout=0.001)
    HandWorker().run_pass()
    return Job.objects.all(), Job.objects.exclude(state="running").count


def match_early(process: Process, declare: Declare) -> Any:
    hipq.enqueue("ask", job_key="k")
    HandWorker().work()
    AnswerFactory.create(job_type="ask", job_key="k")
    return Answer.objects.all(), Answer.objects.exclude(status="early").count


def recover_lost(process: Process, declare: Declare) -> Any:
    hipq.enqueue("echo")
    worker = HandWorker.crashed()
    Worker.objects.filter(pk=worker.row.pk).update(state="lost")
    return Job.objects.all(), Job.objects.exclude(state="running").count


def release_unconfirmed(process: Process, declare: Declare) -> Any:
    hipq.enqueue("echo")
    HandWorker().run_pass()
    Job.objects.update(worker=process.worker)
    return Job.objects.all(), Job.objects.exclude(state="running").count


def declare_schedules(process: Process, declare: Declare) -> Any:
    declare("hourly", schedule=hipq.Every(seconds=3600))(lambda job: None)
    declared.sync("default")
    Schedule.objects.update(retired=True)
    return Schedule.objects.all(), Schedule.objects.filter(retired=False).count


def fire_schedules(process: Process, declare: Declare) -> Any:
    declare("hourly", schedule=hipq.Every(seconds=3600))(lambda job: None)
    declared.sync("default")
    Schedule.objects.update(next_time=now() - timedelta(seconds=1))
    return Schedule.objects.all(), Job.objects.count


def retire_schedules(process: Process, declare: Declare) -> Any:
    declare("hourly", schedule=hipq.Every(seconds=3600))(lambda job: None)
    declared.sync("default")
    declare.forget_all()
    process.row_sync.has_schedules = True
    return Schedule.objects.all(), Schedule.objects.filter(retired=True).count


def unhold_jobs(process: Process, declare: Declare) -> Any:
    first = hipq.enqueue("echo")
    held = hipq.enqueue("echo", after=[first])
    Job.objects.filter(pk=first.pk).update(state="running")
    Job.objects.filter(pk=first.pk).update(state="final", outcome="succeeded")
    rows = Job.objects.filter(pk=held.pk)
    return rows, rows.filter(hold_time=None).count


def expire_early(process: Process, declare: Declare) -> Any:
    AnswerFactory.create(job_type="ask", job_key="k")
    Answer.objects.update(receive_time=now() - timedelta(days=2))
    return Answer.objects.all(), Answer.objects.filter(status="unmatched").count


def continue_ranking(process: Process, declare: Declare) -> Any:
    hipq.enqueue("echo")
    Queue.objects.update(order="priority")
    ranks = set(Job.objects.values_list("rank", flat=True))
    return Queue.objects.all(), Job.objects.exclude(rank__in=ranks).count


def find_strays(process: Process, declare: Declare) -> Any:
    continue_ranking(process, declare)
    process.duties["continue_ranking"].do()
    Job.objects.update(rank=F("rank") - 10**15)
    return Queue.objects.all(), Queue.objects.filter(ranking={}).count


def forget_workers(process: Process, declare: Declare) -> Any:
    old = WorkerFactory.create(state="stopped", heartbeat_time=now() - timedelta(days=2))
    rows = Worker.objects.filter(pk=old.pk)
    return rows, lambda: 1 - rows.count()


PREPARED: list[Prepare] = [
    time_out_overdue, match_early, recover_lost, release_unconfirmed, declare_schedules,
    fire_schedules, retire_schedules, unhold_jobs, expire_early, continue_ranking, find_strays,
    forget_workers,
]  # fmt: skip
WITHOUT_ROWS = {
    "sweep_companions", "warn_of_undeclared", "look_at_threads",
}  # fmt: skip
"""The locks of the second are tested with flows; the last ones only read."""


def test_every_duty_is_here(process: Process) -> None:
    assert {prepare.__name__ for prepare in PREPARED} | WITHOUT_ROWS == set(process.duties)


@pytest.fixture
def holder() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


@pytest.mark.parametrize("prepare", PREPARED, ids=lambda prepare: prepare.__name__)
def test_it_passes_over_locked_rows_and_does_them_later(
    prepare: Prepare, process: Process, declare: Declare, holder: Session, session: Session
) -> None:
    rows, done = prepare(process, declare)
    duty = process.duties[prepare.__name__]
    holder.begin()
    holder(lambda: list(rows.select_for_update(of=("self",))))

    doing = session.start(duty.do)
    doing.result(LIMIT_SECONDS)
    during = done()
    holder.roll_back()
    eventually(lambda: (duty.do(), done())[1], "it is done", seconds=PATIENCE_SECONDS)

    assert (during, done()) == (0, 1)


def test_a_worker_that_stops_puts_back_what_it_owns_without_knowing(
    process: Process, declare: Declare
) -> None:
    """The claim was committed, and the reply to that commit was lost."""
    release_unconfirmed(process, declare)
    process.writer = ResultWriter(process.scheduler, lambda: None)
    process.writer.open()

    process._drain()

    job = Job.objects.get()
    assert (job.state, job.worker, job.attempts.count()) == ("retry", None, 0)
