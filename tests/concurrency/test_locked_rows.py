"""Somebody keeps the row of a job locked: its result waits, and nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.database.isolation import PATIENCE_SECONDS
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.parts import WAIT_FOR
from hipq_django.engines import engine_for, postgres
from hipq_django.models import Answer, Job, Queue
from hipq_django.processes.own_threads import Listener
from hipq_django.processes.worker import POLL_SECONDS
from tests.concurrency.sessions import Session
from tests.concurrency.test_duties import Process
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker
from tests.passing import Passing
from tests.processes.conftest import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of rows"),
]

LIMIT_SECONDS = 5.0
"""Who waits for a row here waits for half a minute; who is only slow is done long before."""


def fail_once(job: Job) -> str:
    if job.attempt == 1:
        raise OSError("no answer")
    return "done"


def succeed(_: Job) -> str:
    return "done"


def wait(_: Job) -> Any:
    return hipq.WAIT


def wait_for_two(_: Job) -> Any:
    return WAIT_FOR("front", "back")


def snooze(_: Job) -> None:
    raise hipq.Snooze(60)


HANDLERS = [succeed, fail_once, wait, wait_for_two, snooze]


def lock(session: Session, job: Job) -> None:
    """Lock a job's row, as a view does that cancels it and goes on for long."""
    session.begin()
    session(lambda: Job.objects.select_for_update().get(pk=job.pk))


def in_time(step: Callable[[], Any]) -> None:
    began = time.monotonic()
    step()
    assert time.monotonic() - began < LIMIT_SECONDS


WAYS = ["as usual", "after a lock"]
"""A worker that found a row locked a moment ago writes another way for a while."""


def choose_way(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    last = time.monotonic() if way == "after a lock" else -1e9
    monkeypatch.setattr(postgres, "_contended", {"default": last})


@pytest.fixture(params=WAYS)
def was_locked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_way(monkeypatch, request.param)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_the_results_of_other_jobs_are_written(
    declare: Declare, session: Session, was_locked: None, handler: Callable[[Job], Any]
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(handler)
    jobs = hipq.enqueue_many([hipq.NewJob("work", job_key=f"k-{n}") for n in range(3)])
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    lock(session, jobs[1])

    in_time(worker.save)
    during = [Job.objects.get(pk=job.pk).phase for job in jobs]
    session.roll_back()
    worker.save()

    assert during == ["NONE", "request", "NONE"]
    states = Job.objects.order_by("pk").values_list("state", "phase", "worker")
    assert len(set(states)) == 1
    assert worker.batch.ids == []


def test_a_locked_row_is_left_inside_of_a_transaction_and_the_others_are_written(
    declare: Declare, session: Session
) -> None:
    declare("work")(succeed)
    jobs = hipq.enqueue_many([hipq.NewJob("work") for _ in range(3)])
    worker = HandWorker()
    worker.run_pass()
    lock(session, jobs[1])
    engine, now = engine_for("default"), clock.now("default")
    done = [(job.pk, 1, f"done {job.pk}", True) for job in jobs]
    finished: list[set[int]] = []

    def finish() -> None:
        with worker_transaction("default"):
            finished.append(engine.finish(done, worker.row, now))

    in_time(finish)
    session.roll_back()
    in_time(finish)

    assert finished == [{jobs[0].pk, jobs[2].pk}, {jobs[1].pk}]
    results = dict(Job.objects.values_list("pk", "result"))
    assert results == {job.pk: f"done {job.pk}" for job in jobs}


def test_a_limited_queue_goes_on(declare: Declare, session: Session) -> None:
    Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    jobs = hipq.enqueue_many([hipq.NewJob("work") for _ in range(6)])
    worker = HandWorker()
    worker.run_pass()
    lock(session, jobs[0])

    for _ in range(9):
        worker.execute()
        in_time(worker.run_pass)
    done = Job.objects.final().count()
    session.roll_back()
    worker.save()

    assert done == 5
    assert Job.objects.filter(outcome="succeeded").count() == 6


def test_a_result_that_was_waited_for_in_vain_is_dropped(
    declare: Declare, session: Session
) -> None:
    declare("work")(succeed)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    session.begin()
    session(lambda: hipq.cancel(job))

    worker.save()
    kept = worker.batch.ids
    session.commit()
    worker.save()

    job.refresh_from_db()
    assert (kept, worker.batch.ids) == ([job.pk], [])
    assert job.outcome == "cancelled"


def test_an_early_answer_that_somebody_has_locked_stops_no_other_queue(
    declare: Declare, session: Session
) -> None:
    declare("work")(succeed)
    answer = AnswerFactory.create(job_type="work", job_key="k")
    job = hipq.enqueue("work", job_key="k", queue="a", time_windows=["00:00-24:00"])
    other = hipq.enqueue("work", queue="b", time_windows=["00:00-24:00"])
    session.begin()
    session(lambda: Answer.objects.select_for_update().get(pk=answer.pk))
    worker = HandWorker()

    in_time(worker.run_pass)
    session.roll_back()
    worker.run_pass()

    other.refresh_from_db()
    job.refresh_from_db()
    assert (other.state, job.state, job.result) == ("running", "final", "yes")


def lock_table(session: Session, name: str) -> None:
    """Lock a table, as a migration does."""
    session.begin()
    session(lambda: connection.cursor().execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))


# The row of a queue


def lock_queue(session: Session, queue: Queue) -> None:
    """Lock a queue's row, as somebody does who edits it and goes on for long."""
    session.begin()
    session(lambda: Queue.objects.select_for_update().get(pk=queue.pk))


@pytest.mark.parametrize("locked", ["job", "queue", "table"])
def test_a_lock_that_lasts_is_named_once(
    declare: Declare,
    session: Session,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    locked: str,
) -> None:
    queue = Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    job = hipq.enqueue("work", job_key="k")
    worker, passing = HandWorker(), Passing(monkeypatch)
    if locked == "job":
        worker.run_pass()
        worker.execute()
        lock(session, job)
    elif locked == "queue":
        lock_queue(session, queue)
    else:
        lock_table(session, "hipq_answer")

    said = []
    for _ in range(4):
        worker.run_pass()
        passing.seconds += PATIENCE_SECONDS * 2 / 3
        said.append(caplog.text.count("event=row_left_alone"))
    session.roll_back()
    for _ in range(3):
        worker.work()

    assert said == [0, 0, 1, 1]
    assert Job.objects.get().outcome == "succeeded"


def test_a_worker_tries_a_queue_that_stays_locked_as_seldom_as_if_it_were_idle(
    declare: Declare, session: Session
) -> None:
    queue = Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    hipq.enqueue("work")
    process = Process()
    process.listener = Listener(process.worker, process.config, lambda queue: None)
    lock_queue(session, queue)

    process.scheduler.run_once()
    first = process.contended_pause()
    eventually(
        lambda: process.scheduler.run_once() or process.contended_pause() > POLL_SECONDS / 2,
        "the pauses have grown",
    )
    session.roll_back()

    assert first < POLL_SECONDS / 10
    assert process.scheduler.run_once() == 1
