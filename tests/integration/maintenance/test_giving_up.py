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


def test_a_worker_that_was_given_up_claims_nothing() -> None:
    job = hipq.enqueue("echo")
    worker = HandWorker()
    give_up(worker)

    claimed = pass_of(worker)

    assert claimed == []
    job.refresh_from_db()
    assert (job.state, job.attempt, job.worker) == ("initial", 0, None)


def pass_of(worker: HandWorker) -> list[Job]:
    """Run a pass that may end with the news that the worker was given up."""
    try:
        return worker.run_pass()
    except DeclaredLostError:
        return []


def test_its_limited_queue_gives_it_nothing_either(configure_queue: Any) -> None:
    configure_queue(THROTTLE_LIMIT=2)
    jobs = hipq.enqueue_many([hipq.NewJob("echo") for _ in range(4)])
    worker = HandWorker()
    worker.run_pass()
    give_up(worker)

    worker.execute()
    pass_of(worker)
    worker.save()

    states = sorted(Job.objects.get(pk=job.pk).state for job in jobs)
    assert states.count("initial") == 2
    assert worker.claims == []


def test_nor_do_queues_with_throttlers(configure_queue: Any) -> None:
    configure_queue(lambda queue, now, running, candidates: [hipq.Run() for _ in candidates])
    job = hipq.enqueue("echo")
    worker = HandWorker()
    give_up(worker)

    assert pass_of(worker) == []
    job.refresh_from_db()
    assert job.state == "initial"


def test_it_takes_no_decision(declare: Declare) -> None:
    declare("fails")(lambda job: 1 / 0).on_error(lambda job: hipq.RetryIn(60))
    job = hipq.enqueue("fails")
    HandWorker().work()
    worker = HandWorker()
    give_up(worker)

    assert pass_of(worker) == []
    job.refresh_from_db()
    assert (job.state, job.worker) == ("error", None)


def test_it_takes_no_response(declare: Declare) -> None:
    charge = declare("charge")(lambda job: hipq.WAIT)
    charge.on_response(lambda job, response: response)
    job = hipq.enqueue("charge", job_key="k")
    HandWorker().work()
    hipq.complete("charge", "k", response="paid")
    worker = HandWorker()
    give_up(worker)

    assert pass_of(worker) == []
    job.refresh_from_db()
    assert (job.state, job.has_pending_answer, job.worker) == ("running", True, None)


def test_a_beat_that_finds_its_row_lost_makes_the_worker_stale_at_once(watcher: Watcher) -> None:
    assert watcher.heartbeat.is_fresh()
    Worker.objects.filter(pk=watcher.row.pk).update(state="lost")

    assert not watcher.heartbeat.beat()
    assert not watcher.heartbeat.is_fresh()

    watcher.heartbeat.begin_anew(WorkerFactory.create())
    assert watcher.heartbeat.is_fresh()


# Duties


def untold(name: str, error: Exception | None) -> None: ...


def test_a_duty_that_fails_keeps_no_other_from_its_work(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    def fail() -> int:
        done.append("fail")
        raise KeyError("No time zone found")

    def work() -> int:
        done.append("work")
        return 0

    upkeep = Duties("default", [Duty("rank", 1, fail), Duty("recover", 1, work)], untold)

    assert upkeep.run(all_of_it=True, waits=False) == 0

    assert done == ["fail", "work"]
    assert "event=duty_failed duty=rank" in caplog.text


def test_what_the_database_refuses_is_no_outage() -> None:
    def refuse() -> int:
        raise DataError("NUL")

    upkeep = Duties("default", [Duty("rank", 1, refuse)], untold)

    assert upkeep.run(all_of_it=True, waits=False) == 0
