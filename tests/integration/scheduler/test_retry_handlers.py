"""Retry handlers: what they see, what they may change, and what becomes of their mistakes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

import pytest

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

ERROR = "RuntimeError: declined"


def decline(_: Job) -> NoReturn:
    raise RuntimeError("declined")


@pytest.fixture
def charge(declare: Declare) -> JobTypeSpec:
    """A type whose handler always fails; the test adds the retry handler."""
    return declare("charge")(decline)


def run(charge: JobTypeSpec, **options: Any) -> Job:
    job = charge.enqueue({"card": 1}, **options)
    run_due_jobs()
    job.refresh_from_db()
    return job


def test_a_retry_handler_sees_the_error_and_the_attempt(charge: JobTypeSpec) -> None:
    """T10."""
    seen: list[Any] = []
    charge.on_error(lambda job: seen.extend([job.error, job.attempt, job.state, job.job_data]))

    run(charge)

    assert seen == [ERROR, 1, "error", {"card": 1}]


def test_a_retry_handler_sets_the_time_and_the_data(charge: JobTypeSpec, frozen_time: Any) -> None:
    """T10: the retry runs with the new data, after that time."""

    @charge.on_error
    def other_card(job: Job) -> hipq.RetryIn:
        job.job_data["card"] += 1
        return hipq.RetryIn(60)

    job = run(charge)
    first = (job.state, job.error, job.job_data, job.scheduled_run_time - clock.now("default"))
    frozen_time.shift(60)
    run_due_jobs()
    job.refresh_from_db()

    assert first == ("retry", ERROR, {"card": 2}, timedelta(seconds=60))
    assert (job.job_data, job.attempt) == ({"card": 3}, 2)


def test_a_retry_handler_may_name_the_moment(charge: JobTypeSpec) -> None:
    """T10: also if it is a coroutine function."""
    later = datetime(2100, 1, 1, tzinfo=UTC)

    @charge.on_error
    async def after_error(job: Job) -> hipq.RetryAt:
        return hipq.RetryAt(later)

    assert run(charge).scheduled_run_time == later


def test_a_moment_in_the_past_is_now(charge: JobTypeSpec) -> None:
    moments = iter([datetime(2001, 1, 1, tzinfo=UTC)])
    charge.on_error(lambda job: hipq.RetryAt(next(moments)) if job.attempt == 1 else None)

    job = run(charge)

    assert job.scheduled_run_time >= job.create_time
    assert job.attempt == 2


@pytest.mark.parametrize("decision", [hipq.GiveUp(), None])
def test_a_retry_handler_may_give_up(charge: JobTypeSpec, decision: Any) -> None:
    """T11: its changes are dropped."""

    @charge.on_error
    def give_up(job: Job) -> Any:
        job.job_data["card"] = 2
        return decision

    job = run(charge)

    assert (job.state, job.outcome, job.error) == ("final", "failed", ERROR)
    assert job.job_data == {"card": 1}


def test_a_retry_handler_may_change_what_the_next_attempt_needs(charge: JobTypeSpec) -> None:
    @charge.on_error
    def calm_down(job: Job) -> hipq.RetryIn:
        job.job_key, job.priority, job.throttle_factor = "other", 7, 2.5
        job.timeout, job.time_windows = 60, [hipq.TimeWindow("00:00", "24:00")]
        return hipq.RetryIn(60)

    job = run(charge, job_key="k")

    assert (job.job_key, job.priority, job.throttle_factor) == ("other", 7, Decimal("2.5"))
    assert (job.timeout, job.time_windows) == (60, ["00:00-24:00"])
    assert job.rank == job.queue.ordering.rank(job.scheduled_run_time, 7)


def test_what_a_retry_handler_must_not_change_stays(charge: JobTypeSpec) -> None:
    @charge.on_error
    def scribble(job: Job) -> hipq.RetryIn:
        job.attempt, job.state, job.error, job.result = 9, "final", "other", "done"
        job.create_time, job.pk = clock.now("default"), 0
        return hipq.RetryIn(60)

    job = run(charge)

    assert (job.attempt, job.state, job.error, job.result) == (1, "retry", ERROR, None)


# Mistakes


def raising(job: Job) -> NoReturn:
    job.job_data["card"] = 2
    job.priority = 1
    raise KeyError("card")


def nonsense(job: Job) -> Any:
    job.job_data["card"] = 2
    return "later"


def not_json(job: Job) -> hipq.RetryIn:
    job.job_data["card"] = object()
    return hipq.RetryIn(0)


def bad_priority(job: Job) -> hipq.RetryIn:
    job.job_data["card"] = 2
    job.priority = "high"  # type: ignore[assignment]  # what a mistaken handler does
    return hipq.RetryIn(0)


def bad_windows(job: Job) -> hipq.RetryIn:
    job.job_data["card"] = 2
    job.time_windows = ["05:00-05:00"]
    return hipq.RetryIn(0)


def bad_delay(_: Job) -> hipq.RetryIn:
    return hipq.RetryIn(-1)


@pytest.mark.parametrize(
    "handler", [raising, nonsense, not_json, bad_priority, bad_windows, bad_delay]
)
def test_a_retry_handler_that_makes_a_mistake_ends_the_job_with_its_own_error(
    charge: JobTypeSpec, handler: Callable[[Job], Any]
) -> None:
    """T12, T13: final, the job's own error kept, the handler's changes dropped."""
    charge.on_error(handler)

    job = run(charge)

    assert (job.state, job.outcome, job.error) == ("final", "failed", ERROR)
    assert (job.job_data, job.priority, job.time_windows) == ({"card": 1}, 100, [])


def test_a_key_that_keeps_others_with_its_arguments_away_is_not_changed(
    declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    charge = declare("charge", unique="live")(decline)

    @charge.on_error
    def change_key(job: Job) -> hipq.RetryIn:
        job.job_key = "other"
        return hipq.RetryIn(60)

    job = run(charge)

    assert (job.state, job.error) == ("final", ERROR)
    assert "retry handler: job_key: job type 'charge' has unique='live'" in caplog.text


# When the handler runs


def test_the_retry_handler_decides_in_the_next_batch(charge: JobTypeSpec) -> None:
    charge.on_error(lambda job: hipq.RetryIn(60))
    job = charge.enqueue({"card": 1})
    worker = HandWorker()

    states = []
    for _ in range(2):
        worker.work()
        job.refresh_from_db()
        states.append(job.state)

    assert states == ["error", "retry"]


def test_a_retry_handler_never_runs_beside_the_handler(charge: JobTypeSpec) -> None:
    """Nobody decides about a job that is in a worker's hands."""
    charge.on_error(lambda job: hipq.RetryIn(60))
    charge.enqueue({"card": 1})
    worker, other = HandWorker(), HandWorker()
    worker.work()

    taken = worker.run_pass()

    assert len(taken) == 1
    assert other.run_pass() == []
