"""Who is given up: a worker declares others lost, and jobs overdue, only where it is sure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.errors import DeclaredLostError
from hipq_django.maintenance.duties import Duties, Duty
from hipq_django.models import Job, Worker
from hipq_django.processes.heartbeat import Heartbeat, Witness
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.passing import Passing

pytestmark = pytest.mark.django_db

BEAT = 10.0
HOUR = timedelta(hours=1)


class Watcher:
    """A worker's heart and what it has seen; time passes, and beats come, as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._time = Passing(monkeypatch)
        self.row = WorkerFactory.create(name="watcher")
        self.given_up = 0
        self.heartbeat = Heartbeat(self.row, dict, self._note)
        self.witness = Witness(get_instance(), self.heartbeat)

    def _note(self) -> None:
        self.given_up += 1

    def sleep(self, seconds: float) -> None:
        """Let time pass without a beat: the machine is suspended, or the database away."""
        self._time.seconds += seconds

    def watch(self, beats: int) -> int:
        """Beat, and look after each beat; return how many jobs were taken over."""
        taken = 0
        for _ in range(beats):
            self._time.seconds += BEAT
            self.heartbeat.beat()
            taken += self.witness.recover_lost()
        return taken


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    return Watcher(monkeypatch)


@pytest.fixture
def dead() -> HandWorker:
    """A worker that died long ago with a job in its hands."""
    hipq.enqueue("echo")
    return HandWorker.crashed()


def state_of(worker: Worker) -> str:
    return str(Worker.objects.get(pk=worker.pk).state)


# Workers


def test_who_has_beaten_for_three_beats_takes_over_from_whom_it_saw_silent(
    watcher: Watcher, dead: HandWorker
) -> None:
    assert watcher.watch(beats=4) == 1
    assert state_of(dead.row) == "lost"


def test_who_has_just_started_gives_nobody_up(watcher: Watcher, dead: HandWorker) -> None:
    assert watcher.watch(beats=3) == 0
    assert state_of(dead.row) == "running"
    assert watcher.witness.waits


def test_after_an_outage_all_have_three_beats_to_write_one(
    watcher: Watcher, dead: HandWorker
) -> None:
    """The first one that is back finds the others silent, because nobody could beat."""
    watcher.watch(beats=3)

    watcher.sleep(40)
    taken = watcher.watch(beats=3)

    assert taken == 0
    assert state_of(dead.row) == "running"


def test_a_beat_that_fails_is_a_gap(watcher: Watcher, dead: HandWorker) -> None:
    def refuse(*_: Any) -> Any:
        raise OperationalError("away")

    watcher.watch(beats=3)
    with transaction.atomic(), connection.execute_wrapper(refuse), pytest.raises(OperationalError):
        watcher.heartbeat.beat()

    assert watcher.watch(beats=3) == 0
    assert state_of(dead.row) == "running"
    assert watcher.watch(beats=1) == 1


def test_a_worker_that_beats_is_not_lost_whatever_the_servers_clock_does(
    watcher: Watcher, dead: HandWorker
) -> None:
    """Each of its beats looks old, because the server's clock is put forward after it."""
    taken = 0
    for beat in range(10):
        Worker.objects.filter(pk=dead.row.pk).update(
            heartbeat_time=clock.now("default") - HOUR + timedelta(seconds=beat)
        )
        taken += watcher.watch(beats=1)

    assert taken == 0
    assert state_of(dead.row) == "running"


# Jobs past their deadline


@pytest.fixture
def overdue(declare: Declare) -> Job:
    declare("slow", timeout=60)(lambda job: "late")
    job = hipq.enqueue("slow")
    HandWorker().run_pass()
    Job.objects.filter(pk=job.pk).update(deadline=clock.now("default") - HOUR)
    return job


def test_after_an_outage_handlers_that_ended_have_three_beats_to_write_it(
    watcher: Watcher, overdue: Job
) -> None:
    watcher.watch(beats=3)
    watcher.sleep(40)
    watcher.watch(beats=3)

    assert watcher.witness.time_out_overdue() == 0
    assert watcher.witness.waits
    watcher.watch(beats=1)
    assert watcher.witness.time_out_overdue() == 1
    assert not watcher.witness.waits


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("whose", "moved"), [("its own", 1), ("stopped", 1), ("running", 0), ("lost", 0)]
)
def test_who_has_just_started_judges_attempts_that_nobody_else_may_end(
    watcher: Watcher, overdue: Job, whose: str, moved: int
) -> None:
    """Whoever was killed, or is silent, may come back and write a result."""
    if whose == "its own":
        Job.objects.update(last_worker_id=watcher.row.pk)
    else:
        Worker.objects.exclude(pk=watcher.row.pk).update(state=whose)

    assert watcher.witness.time_out_overdue() == moved
    assert watcher.witness.waits == (not moved)


# A worker that was given up


def give_up(worker: HandWorker) -> None:
    Worker.objects.filter(pk=worker.row.pk).update(state="lost")


def pass_of(worker: HandWorker) -> list[Job]:
    """Run a pass that may end with the news that the worker was given up."""
    try:
        return worker.run_pass()
    except DeclaredLostError:
        return []


def plain(configure_queue: ConfigureQueue, declare: Declare) -> None:
    hipq.enqueue("echo")


def in_a_limited_queue(configure_queue: ConfigureQueue, declare: Declare) -> None:
    configure_queue(THROTTLE_LIMIT=2)
    hipq.enqueue("echo")


def with_a_throttler(configure_queue: ConfigureQueue, declare: Declare) -> None:
    configure_queue(lambda queue, now, running, candidates: [hipq.Run() for _ in candidates])
    hipq.enqueue("echo")


def to_be_decided(configure_queue: ConfigureQueue, declare: Declare) -> None:
    declare("fails")(lambda job: 1 / 0).on_error(lambda job: hipq.RetryIn(60))
    hipq.enqueue("fails")
    HandWorker().work()


def answered(configure_queue: ConfigureQueue, declare: Declare) -> None:
    charge = declare("charge")(lambda job: hipq.WAIT)
    charge.on_response(lambda job, response: response)
    hipq.enqueue("charge", job_key="k")
    HandWorker().work()
    hipq.complete("charge", "k", response="paid")


@pytest.mark.parametrize(
    "prepare", [plain, in_a_limited_queue, with_a_throttler, to_be_decided, answered]
)
def test_a_worker_that_was_given_up_takes_no_job(
    prepare: Any, configure_queue: ConfigureQueue, declare: Declare
) -> None:
    prepare(configure_queue, declare)
    before = Job.objects.values().get()
    worker = HandWorker()
    give_up(worker)

    assert pass_of(worker) == []
    assert Job.objects.values().get() == before


def test_a_beat_that_finds_its_row_lost_makes_the_worker_stale_at_once(watcher: Watcher) -> None:
    assert watcher.heartbeat.is_fresh()
    Worker.objects.filter(pk=watcher.row.pk).update(state="lost")

    assert not watcher.heartbeat.beat()
    assert not watcher.heartbeat.is_fresh()

    watcher.heartbeat.begin_anew(WorkerFactory.create())
    assert watcher.heartbeat.is_fresh()


# Duties


def untold(name: str, error: Exception | None) -> None: ...


@pytest.mark.parametrize("error", [KeyError("No time zone found"), DataError("NUL")])
def test_a_duty_that_fails_keeps_no_other_from_its_work(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def fail() -> int:
        done.append("fail")
        raise error

    def work() -> int:
        done.append("work")
        return 0

    upkeep = Duties("default", [Duty("rank", 1, fail), Duty("recover", 1, work)], untold)

    assert upkeep.run(all_of_it=True, waits=False) == 0

    assert done == ["fail", "work"]
    assert "event=duty_failed duty=rank" in caplog.text
