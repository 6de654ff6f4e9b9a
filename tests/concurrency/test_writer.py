"""Results that come in by the hundreds are written beside the scheduler's passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.models import Job
from hipq_django.processes.own_threads import ResultWriter
from hipq_django.scheduler import current_batch
from hipq_django.scheduler.current_batch import Lease
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.declaring import Declare
from tests.threads import Crew, working

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


MANY = 20


class WritingCrew(Crew):
    """Threads, a scheduler, and the writer that they leave many results to."""

    def __init__(self) -> None:
        super().__init__(MANY, self._flush)
        self.writer = ResultWriter(self.scheduler, lambda: None)

    def writer_has_failed(self) -> bool:
        """Whether the writer has put its results back."""
        is_left = self.batch.unfinished or self.batch.is_left_to_writer
        return not self.writer._is_well and not is_left

    def _flush(self) -> None:
        self.writer.ask()


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[WritingCrew]:
    monkeypatch.setattr(current_batch, "FLUSH_RESULTS", MANY)
    with working(WritingCrew()) as crew:
        crew.writer.open()
        yield crew
    crew.writer.close()


def wait_until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.001)


@pytest.fixture
def gate(declare: Declare) -> threading.Event:
    """As many jobs as the writer waits for; they end when the gate is opened."""
    gate = threading.Event()
    declare("gated")(lambda job: gate.wait(PATIENCE_SECONDS))
    hipq.enqueue_many([hipq.NewJob("gated") for _ in range(MANY)])
    return gate


class Hold:
    """Keeps the writer at what it is writing: receivers of a signal run before it is done.

    Whatever else is written meanwhile goes on.
    """

    def __init__(self) -> None:
        self._is_held = threading.Event()
        self._may_go_on = threading.Event()

    def receive(self, **_: Any) -> None:
        """Stand in the writer's way."""
        if not self._is_held.is_set():
            self._is_held.set()
            self._may_go_on.wait(PATIENCE_SECONDS)

    def wait(self) -> None:
        """Wait until the writer stands still."""
        assert self._is_held.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """Let the writer go on."""
        self._may_go_on.set()


@pytest.fixture
def hold(crew: WritingCrew, gate: threading.Event) -> Iterator[Hold]:
    """A writer that is in the middle of writing the results of the crew."""
    hold = Hold()
    hipq.signals.job_finished.connect(hold.receive)
    crew.scheduler.run_once()
    gate.set()
    hold.wait()
    yield hold
    hold.end()
    hipq.signals.job_finished.disconnect(hold.receive)


def test_a_pass_leaves_the_results_to_the_writer_that_has_begun(
    crew: WritingCrew, hold: Hold
) -> None:
    crew.scheduler.run_once()
    in_flight = len(crew.batch)
    hold.end()
    wait_until(lambda: not crew.batch)

    assert in_flight == MANY
    assert crew.scheduler.persist_batch() == []


def test_a_pass_that_may_claim_no_more_writes_beside_the_writer(
    crew: WritingCrew, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_batch, "MAX_UNWRITTEN", MANY + 3)
    hipq.enqueue_many([hipq.NewJob("echo") for _ in range(3)])
    wait_until(crew.scheduler.run_once)
    wait_until(lambda: not crew.batch.unfinished)

    crew.scheduler.run_once()

    assert Job.objects.filter(job_type__name="echo").final().count() == 3
    assert crew.batch.unwritten == MANY


def test_a_writer_that_hangs_is_not_waited_for(
    crew: WritingCrew, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example in a receiver of a signal, which cannot be interrupted in its thread."""
    hipq.enqueue_many([hipq.NewJob("echo") for _ in range(3)])
    wait_until(crew.scheduler.run_once)
    wait_until(lambda: not crew.batch.unfinished)
    crew.scheduler.run_once()
    during = Job.objects.filter(job_type__name="echo").final().count()
    monkeypatch.setattr(crew.batch, "_writer_seconds", 0.0)
    monkeypatch.setattr(crew.writer, "_patience_seconds", 0.0)

    crew.scheduler.run_once()
    crew.writer.close()

    assert during == 0
    assert Job.objects.filter(job_type__name="echo").final().count() == 3
    assert crew.batch.unwritten == MANY


def test_after_a_writer_that_ended_in_whatever_way_the_scheduler_writes(
    crew: WritingCrew, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the thread leaves behind must have an owner."""
    ends = [SystemExit(3)]
    real = crew.scheduler.write_lease

    def write(lease: Lease, *args: Any) -> Any:
        if ends and threading.current_thread().name == "hipq-writer":
            with lease:
                raise ends.pop()
        return real(lease, *args)

    monkeypatch.setattr(crew.scheduler, "write_lease", write)
    crew.scheduler.run_once()
    gate.set()
    wait_until(lambda: not ends and crew.writer_has_failed())

    crew.scheduler.persist_batch()

    assert Job.objects.ended(Job.Outcome.SUCCEEDED).count() == MANY
