"""Results that come in by the hundreds are written beside the scheduler's passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.database import locked
from hipq_django.hotpath import sql
from hipq_django.hotpath.statements import PATIENCE
from hipq_django.models import Job
from hipq_django.processes import pool
from hipq_django.processes.pool import ThreadPool
from hipq_django.processes.writer import ResultWriter
from hipq_django.scheduler import BatchScheduler
from tests.concurrency.sessions import PATIENCE_SECONDS, Session, wait_until_blocked
from tests.declaring import Declare
from tests.factories import WorkerFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


MANY = 20


class Crew:
    """A scheduler, threads and a writer, without the process that keeps them going."""

    def __init__(self) -> None:
        self.pool = ThreadPool(MANY, lambda: None, self._flush)
        self.scheduler = BatchScheduler(WorkerFactory.create(), self.pool)
        self.writer = ResultWriter(self.scheduler, self.pool, lambda: None)
        self.pool.open()
        self.writer.open()

    def _flush(self) -> None:
        self.writer.ask()

    def close(self) -> None:
        """End the threads."""
        self.pool.close()
        self.writer.close()


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    monkeypatch.setattr(pool, "FLUSH_RESULTS", MANY)
    crew = Crew()
    yield crew
    crew.close()


def wait_until_written() -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while Job.objects.running().exists():
        assert time.monotonic() < deadline, "nobody writes"


def terminate_writer() -> None:
    """Cut the connection that waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )


@pytest.fixture
def gate(declare: Declare) -> threading.Event:
    """As many jobs as the writer waits for; they end when the gate is opened."""
    gate = threading.Event()
    declare("gated")(lambda job: gate.wait(PATIENCE_SECONDS))
    hipq.enqueue_many([hipq.NewJob("gated") for _ in range(MANY)])
    return gate


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Results are written by a statement that waits for locked rows, and so can be held up."""
    monkeypatch.setattr(sql, "_contended", {})
    change = "ALTER FUNCTION hipq_finish SET lock_timeout = {}"
    with connection.cursor() as cursor:
        cursor.execute(change.format(0))
    yield
    with connection.cursor() as cursor:
        cursor.execute(change.format(PATIENCE))


@pytest.fixture
def held_up(patience: None, crew: Crew, gate: threading.Event, session: Session) -> Crew:
    """A crew whose writer waits for rows that the session has locked."""
    crew.scheduler.run_once()
    session.begin()
    session(lambda: list(locked(Job.objects.running())))
    gate.set()
    wait_until_blocked()
    return crew


def test_many_results_are_written_without_a_pass(crew: Crew, gate: threading.Event) -> None:
    crew.scheduler.run_once()
    gate.set()
    wait_until_written()

    assert Job.objects.ended(Job.Outcome.SUCCEEDED).count() == MANY


def test_the_next_pass_waits_for_quick_jobs_and_not_for_slow_ones(
    crew: Crew, gate: threading.Event
) -> None:
    crew.scheduler.run_once()
    crew.pool.await_done(0.001)
    slow = crew.pool.free()

    gate.set()
    crew.pool.await_done(PATIENCE_SECONDS)

    assert (slow, crew.pool.free()) == (0, MANY)


def test_a_pass_leaves_the_results_to_the_writer_that_has_begun(
    held_up: Crew, session: Session
) -> None:
    held_up.scheduler.run_once()
    session.roll_back()
    wait_until_written()

    assert held_up.pool.in_hand == 0
    assert held_up.scheduler.persist_batch() == []


def test_what_the_writer_cannot_write_the_next_pass_writes(held_up: Crew, session: Session) -> None:
    terminate_writer()
    session.roll_back()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not held_up.pool.in_hand:
        assert time.monotonic() < deadline, "the results were lost"
    held_up.scheduler.run_once()
    wait_until_written()

    assert held_up.scheduler.batch == {}


def test_a_stopping_writer_ends_what_it_is_writing(held_up: Crew, session: Session) -> None:
    closing = threading.Thread(target=held_up.writer.close)
    closing.start()
    session.roll_back()
    closing.join(PATIENCE_SECONDS)

    assert not closing.is_alive()
    assert not Job.objects.running().exists()


def test_what_comes_after_the_writer_was_stopped_the_scheduler_writes(
    crew: Crew, gate: threading.Event
) -> None:
    crew.scheduler.run_once()
    crew.writer.close()
    gate.set()
    crew.pool.await_done(PATIENCE_SECONDS)

    assert len(crew.scheduler.persist_batch()) == MANY


def test_many_results_are_the_writers_before_it_comes(gate: threading.Event) -> None:
    """Else the scheduler would write them, and claim nothing meanwhile."""
    threads = ThreadPool(MANY, lambda: None, lambda: None)
    threads.open()
    BatchScheduler(WorkerFactory.create(), threads).run_once()
    gate.set()
    threads.await_done(PATIENCE_SECONDS)

    threads.leave_many()
    taken = threads.take_results()
    threads.close()

    assert taken == []
    assert threads.in_hand == MANY
