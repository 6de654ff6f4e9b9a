"""Several workers at one queue: exact limits, no job twice, no waiting for each other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database.locks import locked
from hipq_django.maintenance import recovery
from hipq_django.models import Attempt, Job, Queue, Worker
from hipq_django.scheduler.executor import execute
from hipq_django.signals import job_finished
from tests.concurrency.sessions import Session, errors_of, run_together
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 4


def enqueue(*factors: float, name: str = "ask") -> None:
    hipq.enqueue_many([hipq.NewJob(name, throttle_factor=factor) for factor in factors])


def keep_claiming() -> None:
    """Claim as a worker with many threads does, pass after pass."""
    worker = HandWorker()
    for _ in range(6):
        worker.work()


class Gauge:
    """Measures from inside the handlers how much runs at a time."""

    def __init__(self) -> None:
        self.ran: Counter[int] = Counter()
        self.most = self._now = Decimal(0)
        self._lock = threading.Lock()

    def handler(self, job: Job) -> None:
        """Work for a moment, measured."""
        with self._lock:
            self.ran[job.pk] += 1
            self._now += job.throttle_factor
            self.most = max(self.most, self._now)
        threading.Event().wait(0.005)  # the work itself
        with self._lock:
            self._now -= job.throttle_factor


@contextmanager
def results_told() -> Iterator[list[Any]]:
    """Yield a list that gets the result of each job that is said to have finished."""
    told: list[Any] = []

    def note(job: Job, **_: Any) -> None:
        told.append(job.result)

    job_finished.connect(note)
    try:
        yield told
    finally:
        job_finished.disconnect(note)


@pytest.mark.postgres
def test_of_two_attempts_that_end_together_only_the_newest_is_told_of(
    declare: Declare, configure_queue: ConfigureQueue
) -> None:
    """Where a full queue gets its results written and the next jobs claimed at once."""
    configure_queue(THROTTLE_LIMIT=1)
    declare("slow", timeout=0.001, retry=hipq.Fixed(0))(lambda job: job.attempt)
    hipq.enqueue("slow")
    worker = HandWorker()
    worker.run_pass()
    first = worker.claims.pop()
    while not recovery.time_out_overdue(get_instance()):
        pass
    worker.work()
    worker.run_pass()
    for claim in (first, *worker.claims):
        worker.batch.deliver(execute(claim))
    worker.claims.clear()

    with results_told() as told:
        worker.run_pass()

    assert (told, Job.objects.get().result) == ([2], 2)


@pytest.mark.parametrize(
    ("throttlers", "limit", "started"),
    [([], 1, 1), ([], 10, 10), ([hipq.RateLimit(7, per=3_600)], 0, 7)],
)
def test_four_workers_never_start_more_than_the_limit(
    configure_queue: ConfigureQueue, throttlers: list[Any], limit: int, started: int
) -> None:
    """T22: jobs that wait for their answer never make room, so that each excess stays visible."""
    configure_queue(*throttlers, THROTTLE_LIMIT=limit)
    enqueue(*[1] * 100)

    results = run_together(*[keep_claiming] * WORKERS)

    assert errors_of(results) == []
    assert Job.objects.running().count() == started


@pytest.mark.postgres
def test_timeouts_and_lost_workers_are_found_while_a_worker_admits(
    configure_queue: ConfigureQueue, session: Session
) -> None:
    """They lock the jobs and not the queue, which many workers keep locked most of the time."""
    queue = configure_queue()
    enqueue(1, 1)
    Job.objects.filter(pk=Job.objects.earliest("pk").pk).update(timeout=0.001)
    HandWorker.crashed()
    session.begin()
    session(lambda: list(locked(Queue.objects.using("default").filter(pk=queue.pk))))

    found = [recovery.time_out_overdue(get_instance()), recovery.recover_lost(get_instance())]

    session.roll_back()
    assert found == [1, 1]


@pytest.mark.postgres
def test_what_was_done_in_a_full_queue_is_written_while_another_worker_admits(
    configure_queue: ConfigureQueue, session: Session
) -> None:
    """Where queues are locked one by one: SQLite has one lock, and both workers wait for it."""
    queue = configure_queue(THROTTLE_LIMIT=1)
    enqueue(1, 1, name="echo")
    worker = HandWorker()
    [first] = worker.run_pass()
    worker.execute()
    session.begin()
    session(lambda: locked(Queue.objects.using("default").filter(pk=queue.pk)).get())

    claimed = worker.run_pass()
    session.roll_back()
    after = worker.run_pass()

    first.refresh_from_db()
    assert (first.outcome, claimed, len(after)) == ("succeeded", [], 1)


def test_mixed_factors_fill_the_limit_exactly(configure_queue: ConfigureQueue) -> None:
    """T20, T22: in strict order, whoever claims."""
    configure_queue(THROTTLE_LIMIT=10)
    enqueue(2, 0.5, 3, 0, 2.5, 1, *[3, 0.5] * 40)

    run_together(*[keep_claiming] * WORKERS)

    running = Job.objects.running().order_by("pk").values_list("throttle_factor", flat=True)
    assert [float(factor) for factor in running] == [2, 0.5, 3, 0, 2.5, 1]


def test_the_handlers_themselves_never_see_more_than_the_limit(
    configure_queue: ConfigureQueue, declare: Declare
) -> None:
    """T22."""
    configure_queue(THROTTLE_LIMIT=5)
    gauge = Gauge()
    declare("gauged")(gauge.handler)
    enqueue(*[1, 2, 3] * 12, name="gauged")

    results = run_together(*[run_due_jobs] * WORKERS)
    run_due_jobs()

    assert errors_of(results) == []
    assert gauge.most <= 5
    assert set(gauge.ran.values()) == {1}
    assert Job.objects.final().filter(outcome="succeeded").count() == 36


def test_no_job_runs_twice_without_a_limit(declare: Declare) -> None:
    """A1: a job is in the hands of one worker or of none."""
    gauge = Gauge()
    declare("gauged")(gauge.handler)
    enqueue(*[1] * 60, name="gauged")

    results = run_together(*[run_due_jobs] * WORKERS)
    run_due_jobs()

    assert errors_of(results) == []
    assert (len(gauge.ran), set(gauge.ran.values())) == (60, {1})


def test_shares_hold_over_all_workers(configure_queue: ConfigureQueue) -> None:
    """T23."""
    shares = hipq.ShareLimit("region", {"east": 0.4, "north": 0.3, "west": 0.3})
    configure_queue(shares, THROTTLE_LIMIT=20)
    hipq.enqueue_many(
        [hipq.NewJob("ask", {"region": r}) for _ in range(20) for r in ("east", "north", "west")]
    )

    run_together(*[keep_claiming] * WORKERS)

    regions = Counter(job.job_data["region"] for job in Job.objects.running())
    assert regions == {"east": 8, "north": 6, "west": 6}


# Nobody waits


@pytest.mark.postgres
def test_a_queue_that_another_worker_is_scheduling_is_left_to_it(
    session: Session, configure_queue: ConfigureQueue
) -> None:
    queue = configure_queue(THROTTLE_LIMIT=10)
    enqueue(1)
    hipq.enqueue("ask", queue="other")
    session.begin()
    session(lambda: locked(Queue.objects.using("default").filter(pk=queue.pk)).get())
    worker = HandWorker()

    claimed = worker.run_pass()

    assert [job.queue.name for job in claimed] == ["other"]
    assert not worker.scheduler.found_nothing


# Duties by several at once


@pytest.mark.parametrize("duty", [recovery.recover_lost, recovery.time_out_overdue])
def test_lost_workers_and_timeouts_are_found_once(duty: Callable[[Any], int]) -> None:
    """T14, T18."""
    enqueue(*[1] * 20, name="echo")
    HandWorker().run_pass()
    Worker.objects.update(heartbeat_time="2001-01-01T00:00:00Z")
    Job.objects.update(deadline="2001-01-01T00:00:00Z")

    counts = run_together(*[lambda: duty(get_instance())] * WORKERS)

    assert errors_of(counts) == []
    assert Attempt.objects.count() == 20
    assert set(Job.objects.values_list("state", flat=True)) == {"error"}


def test_an_error_is_decided_about_once(declare: Declare) -> None:
    decided: Counter[int] = Counter()
    flaky = declare("flaky")(lambda job: 1 / 0)
    flaky.on_error(lambda job: decided.update([job.pk]))
    enqueue(*[1] * 20, name="flaky")
    HandWorker().work()

    run_together(*[lambda: HandWorker().work()] * WORKERS)
    run_due_jobs()

    assert (len(decided), set(decided.values())) == (20, {1})


def test_a_worker_that_comes_back_while_it_is_given_up_writes_its_result() -> None:
    """T19: nobody has begun the job anew, so its result counts, whoever was first."""
    for _ in range(8):
        job = hipq.enqueue("echo", "done")
        worker = HandWorker()
        worker.run_pass()
        worker.execute()
        Worker.objects.filter(pk=worker.row.pk).update(heartbeat_time="2001-01-01T00:00:00Z")

        errors = errors_of(run_together(worker.save, lambda: recovery.recover_lost(get_instance())))

        worker.save()  # where the row was locked just then

        job.refresh_from_db()
        assert errors == []
        assert (job.outcome, job.attempt) == ("succeeded", 1)
        assert job.attempts.filter(kind="worker_lost").count() == job.attempts.count() <= 1
