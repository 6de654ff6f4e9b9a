"""Retry policies at work: how failures are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.domain.retries import Decision, Failure
from hipq_django.exceptions import ErrorAnswer
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


def run(name: str) -> Job:
    job = hipq.enqueue(name)
    run_due_jobs()
    job.refresh_from_db()
    return job


@pytest.mark.conformance
def test_a_job_is_tried_as_often_as_its_policy_says(declare: Declare, frozen_time: Any) -> None:
    tried: list[int] = []

    @declare("flaky", retry=hipq.Fixed(seconds=10, max_attempts=3))
    def flaky(job: Job) -> None:
        tried.append(job.attempt)
        raise OSError

    job = run("flaky")
    for _ in range(5):
        frozen_time.shift(10)
        run_due_jobs()
    job.refresh_from_db()

    assert tried == [1, 2, 3]
    assert (job.outcome, job.attempts.count()) == ("failed", 3)


def test_a_policy_counts_failures_and_no_snoozes(declare: Declare) -> None:
    """Ten snoozes and one failure are one failure."""

    @declare("sleepy", retry=hipq.Fixed(seconds=0, max_attempts=2))
    def sleepy(job: Job) -> str:
        if job.attempt <= 10:
            raise hipq.Snooze(0)
        if job.attempt == 11:
            raise OSError
        return "done"

    job = run("sleepy")

    assert (job.outcome, job.attempt, job.attempts.count()) == ("succeeded", 12, 1)


@pytest.mark.parametrize("policy", [None, hipq.Fixed(60)])
def test_a_shipped_policy_decides_together_with_the_error(declare: Declare, policy: Any) -> None:
    """The job is not claimed once more to be decided about."""
    declare("flaky", retry=policy)(lambda job: 1 / 0)
    job = hipq.enqueue("flaky")
    worker = HandWorker()
    worker.work()

    job.refresh_from_db()
    assert job.state == ("retry" if policy else "final")
    assert (job.attempts.count(), worker.run_pass()) == (1, [])


def test_the_delays_grow(declare: Declare, frozen_time: Any) -> None:
    policy = hipq.Exponential(max_attempts=9, first_seconds=10, factor=3, jitter=0)
    declare("flaky", retry=policy)(lambda job: 1 / 0)
    job = run("flaky")

    delays = []
    for _ in range(3):
        job.refresh_from_db()
        delays.append((job.scheduled_run_time - clock.now("default")) / timedelta(seconds=1))
        frozen_time.move_to(job.scheduled_run_time + timedelta(seconds=1))
        run_due_jobs()

    assert delays == [10, 30, 90]


def test_jobs_that_fail_together_are_not_tried_again_together(declare: Declare) -> None:
    declare("flaky", retry=hipq.Exponential(first_seconds=1_000, jitter=1))(lambda job: 1 / 0)
    hipq.enqueue_many([hipq.NewJob("flaky") for _ in range(20)])
    HandWorker().work()

    assert Job.objects.filter(state="retry").values("scheduled_run_time").distinct().count() > 10


def test_jobs_that_fail_together_are_each_tried_again_as_they_are(
    declare: Declare, frozen_time: Any
) -> None:
    """With their own policies, priorities and time windows, and after their own failures."""
    noon = datetime(2026, 3, 3, 12, tzinfo=UTC)
    declare("slow", retry=hipq.Fixed(60, max_attempts=2))(lambda job: 1 / 0)
    declare("hasty", retry=hipq.Fixed(5))(lambda job: 1 / 0)
    windows = ["12:00-12:01", "15:00-16:00"]
    new = [
        hipq.NewJob("slow", job_key="slow"),
        hipq.NewJob("slow", job_key="urgent", priority=900),
        hipq.NewJob("slow", job_key="window", time_windows=windows),
        hipq.NewJob("hasty", job_key="hasty"),
        hipq.NewJob("hasty", job_key="hasty window", time_windows=windows),
    ]
    frozen_time.move_to(noon - timedelta(seconds=60))
    hipq.enqueue("slow")
    HandWorker().work()
    frozen_time.move_to(noon)
    hipq.enqueue_many(new)
    HandWorker().run_until_idle()

    rows = Job.objects.order_by("pk")
    after = {job.job_key: (job.scheduled_run_time - noon).total_seconds() for job in rows[1:]}
    assert rows[0].outcome == "failed"
    assert after == {"slow": 60, "urgent": 60, "window": 10_800, "hasty": 5, "hasty window": 5}
    slow, urgent = (rows.get(job_key=key).rank for key in ("slow", "urgent"))
    assert slow != urgent


def test_a_policy_retries_only_the_exceptions_it_names(declare: Declare) -> None:
    @declare("flaky", retry=hipq.Fixed(seconds=0, max_attempts=9, only=(OSError,)))
    def flaky(job: Job) -> None:
        raise ConnectionResetError if job.attempt == 1 else ValueError

    job = run("flaky")

    assert (job.attempt, job.outcome) == (2, "failed")


def test_a_policy_may_name_an_answer_with_an_error(declare: Declare) -> None:
    declare("asked", retry=hipq.Fixed(seconds=60, only=(ErrorAnswer,)))(lambda job: hipq.WAIT)
    job = hipq.enqueue("asked", job_key="k")
    run_due_jobs()

    hipq.fail("asked", "k", error="declined")
    run_due_jobs()

    job.refresh_from_db()
    assert job.state == "retry"


def test_a_policy_limits_its_own_retry_handler(declare: Declare) -> None:
    @declare("both", retry=hipq.Fixed(max_attempts=3))
    def both(job: Job) -> None:
        raise OSError

    both.on_error(lambda job: hipq.RetryIn(0))

    assert run("both").attempt == 3


def test_a_projects_own_policy_decides(declare: Declare) -> None:
    class Twice:
        def decide(self, failure: Failure) -> Decision:
            return hipq.RetryIn(0) if failure.count < 2 else hipq.GiveUp()

    declare("own", retry=Twice())(lambda job: 1 / 0)

    assert run("own").attempt == 2


class Broken:
    """A policy that raises."""

    def decide(self, failure: Failure) -> Decision:
        """Decide nothing."""
        raise KeyError(failure.count)


class Nonsense:
    """A policy that returns no decision."""

    def decide(self, failure: Failure) -> Any:
        """Decide nothing."""
        return "later"


def draw(low: float, high: float) -> float:
    assert Job.objects.filter(state="error").exists(), "asked before the failure is written"
    raise SystemExit(3)


@pytest.mark.parametrize("policy", [Broken(), Nonsense(), hipq.Exponential(draw=draw)])
def test_a_policy_that_makes_a_mistake_ends_its_job_only(declare: Declare, policy: Any) -> None:
    declare("own", retry=policy)(lambda job: 1 / 0)
    other = hipq.enqueue("echo", priority=200)

    job = run("own")

    other.refresh_from_db()
    assert (job.state, job.error) == ("final", "ZeroDivisionError: division by zero")
    assert other.outcome == "succeeded"
