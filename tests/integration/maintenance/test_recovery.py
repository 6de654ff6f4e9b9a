"""Crashes: what becomes of the jobs that a dead worker had in its hands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import recovery
from hipq_django.models import Attempt, Job, Worker
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

LOST = "WorkerLost: worker {} stopped while it executed attempt 1"


def recover() -> int:
    return recovery.recover_lost(get_instance())


# Who is lost


def test_a_worker_that_beats_keeps_its_jobs() -> None:
    """T18."""
    job = hipq.enqueue("echo")
    worker = HandWorker()
    worker.run_pass()
    Worker.objects.update(heartbeat_time=clock.now("default") - timedelta(seconds=29))

    assert recover() == 0

    job.refresh_from_db()
    assert (job.state, job.worker) == ("running", worker.row)


def test_a_worker_is_lost_after_three_missed_beats() -> None:
    """T18."""
    hipq.enqueue("echo")
    worker = HandWorker.crashed()

    assert recover() == 1

    worker.row.refresh_from_db()
    assert worker.row.state == "lost"


def test_the_jobs_of_a_worker_whose_row_is_gone_are_recovered() -> None:
    job = hipq.enqueue("echo")
    worker = HandWorker()
    worker.run_pass()
    Worker.objects.filter(pk=worker.row.pk)._raw_delete("default")

    assert recover() == 1

    run_due_jobs()
    job.refresh_from_db()
    assert job.outcome == "succeeded"


# What becomes of the jobs


def test_a_lost_job_is_an_error_and_runs_again() -> None:
    """T18."""
    job = hipq.enqueue("echo", "hello")
    worker = HandWorker.crashed()

    recover()
    job.refresh_from_db()
    error = (job.state, job.error, job.worker)
    run_due_jobs()
    job.refresh_from_db()

    assert error == ("error", LOST.format(worker.row.name), None)
    assert (job.outcome, job.result, job.attempt) == ("succeeded", "hello", 2)
    attempt = job.attempts.get()
    assert (attempt.kind, attempt.worker) == (Attempt.Kind.WORKER_LOST, worker.row.name)


def test_a_job_that_waits_for_its_answer_is_in_nobodys_hands_and_is_not_lost() -> None:
    """T18."""
    job = hipq.enqueue("ask", job_key="k")
    worker = HandWorker()
    worker.work()
    worker.die()

    assert recover() == 0

    job.refresh_from_db()
    assert job.state == "running"


def test_a_job_that_was_claimed_but_had_not_started_is_put_back_uncounted() -> None:
    jobs = hipq.enqueue_many([hipq.NewJob("echo") for _ in range(3)])
    HandWorker.crashed(threads=1, ahead=2)

    assert recover() == 3

    states = [Job.objects.get(pk=job.pk).state for job in jobs]
    assert states == ["error", "retry", "retry"]
    assert [job.attempts.count() for job in jobs] == [1, 0, 0]
    assert run_due_jobs() == 3


def test_of_responses_in_flight_only_those_whose_handler_had_begun_are_lost(
    declare: Declare,
) -> None:
    handled = declare("handled")(lambda job: hipq.WAIT)
    handled.on_response(lambda job, response: response)
    jobs = [handled.enqueue(job_key=key) for key in "abc"]
    HandWorker().work()
    for job in jobs:
        handled.complete(job.job_key, "yes")
    worker = HandWorker.crashed(threads=1, ahead=2)

    assert len(worker.claims) == recover() == 3

    states = [Job.objects.get(pk=job.pk).state for job in jobs]
    assert states == ["error", "retry", "retry"]
    assert [job.attempts.count() for job in jobs] == [1, 0, 0]
    run_due_jobs()
    assert set(Job.objects.values_list("outcome", "result")) == {("succeeded", "yes")}


def test_of_decisions_in_flight_only_those_that_had_begun_are_lost(declare: Declare) -> None:
    asked = declare("asked")(lambda job: 1 / 0)
    asked.on_error(lambda job: hipq.GiveUp())
    hipq.enqueue_many([hipq.NewJob("asked") for _ in range(3)])
    HandWorker().work()
    worker = HandWorker.crashed(threads=1, ahead=2)

    assert len(worker.claims) == recover() == 3

    assert list(Attempt.objects.values_list("lost_decisions", flat=True)) == [1, 0, 0]
    assert not Job.objects.exclude(state="error", worker=None).exists()
    next_worker = HandWorker(threads=1, ahead=2)
    next_worker.run_pass()
    assert Job.objects.get(worker=next_worker.row, prefetched=False).attempts.get().lost_decisions


def test_a_job_that_lost_a_worker_is_not_claimed_ahead_again() -> None:
    """So that it is certain next time whether it had started."""
    hipq.enqueue_many([hipq.NewJob("echo") for _ in range(3)])
    HandWorker.crashed(threads=1, ahead=2)
    recover()

    claimed = HandWorker(threads=1, ahead=9).run_pass()

    assert sum(job.prefetched for job in claimed) == 0


def test_three_losses_in_a_row_end_the_job(declare: Declare) -> None:
    """A13: it may be what kills them."""
    job = hipq.enqueue("echo")

    for _ in range(3):
        HandWorker.crashed()
        recover()
        HandWorker().work()

    job.refresh_from_db()
    assert (job.state, job.outcome, job.attempt) == ("final", "failed", 3)
    assert job.error.startswith("WorkerLost: ")


def test_never_means_that_a_lost_job_is_final(declare: Declare) -> None:
    declare("only_once", retry=hipq.Never())(lambda job: "done")
    job = hipq.enqueue("only_once")
    worker = HandWorker.crashed()
    recover()

    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.error) == ("failed", LOST.format(worker.row.name))


def test_the_retry_handler_decides_about_a_lost_job(declare: Declare) -> None:
    seen: list[Any] = []
    charge = declare("charge")(lambda job: "done")
    charge.on_error(lambda job: seen.append((job.error, job.attempt)))
    job = charge.enqueue()
    worker = HandWorker.crashed()
    recover()

    run_due_jobs()

    job.refresh_from_db()
    assert seen == [(LOST.format(worker.row.name), 1)]
    assert job.outcome == "failed"


# The rows of workers


def test_the_rows_of_workers_that_ended_are_forgotten_after_a_day() -> None:
    old = clock.now("default") - timedelta(days=1, seconds=1)
    for state in ("stopped", "lost", "running"):
        WorkerFactory.create(state=state, heartbeat_time=old)
    WorkerFactory.create(state="stopped")

    assert recovery.forget_workers(get_instance()) == 2
    assert sorted(Worker.objects.values_list("state", flat=True)) == ["running", "stopped"]
