"""What a dead worker had in its hands, or brings after all: somebody else was first."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from tests.declaring import Declare, noting
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def recover() -> int:
    return recovery.recover_lost(get_instance())


def raise_oserror(job: Job) -> None:
    raise OSError


def test_a_decision_that_a_dead_worker_had_in_flight_is_made_by_another(declare: Declare) -> None:
    flaky = declare("flaky")(raise_oserror)
    flaky.on_error(lambda job: hipq.RetryIn(60))
    job = flaky.enqueue()
    worker = HandWorker()
    worker.work()
    worker.run_pass()
    worker.die()

    assert recover() == 1
    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("retry", 1)


def test_a_response_that_a_dead_worker_had_in_flight_is_handled_by_another(
    declare: Declare,
) -> None:
    requests: list[int] = []
    charge = declare("charge")(noting(requests, "attempt", hipq.WAIT))
    charge.on_response(lambda job, response: [response])
    job = charge.enqueue(job_key="k")
    run_due_jobs()
    hipq.complete("charge", "k", response="paid")
    HandWorker.crashed()

    assert recover() == 1
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.result, requests) == ("succeeded", ["paid"], [1])


def test_more_jobs_than_one_batch_are_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "PAGE_SIZE", 2)
    hipq.enqueue_many([hipq.NewJob("echo") for _ in range(5)])
    HandWorker.crashed()

    assert [recover() for _ in range(4)] == [2, 2, 1, 0]
    assert run_due_jobs() == 5


def test_the_late_result_of_a_worker_does_not_end_its_own_next_attempt(
    declare: Declare, frozen_time: Any
) -> None:
    """T15: the attempt is the fencing token, not the worker."""
    declare("slow", timeout=60, retry=hipq.Fixed(seconds=0))(lambda job: job.attempt)
    job = hipq.enqueue("slow")
    worker = HandWorker()
    worker.run_pass()
    first = worker.claims.pop()
    frozen_time.shift(61)
    recovery.time_out_overdue(get_instance())
    HandWorker().work()
    worker.run_pass()
    second = worker.claims.pop()

    worker.claims.append(first)
    worker.execute()
    worker.save()

    job.refresh_from_db()
    assert (second.attempt, job.state, job.attempt) == (2, "running", 2)
