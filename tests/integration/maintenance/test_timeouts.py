"""Timeouts: of each attempt, counted from its claim, also while the job waits for its answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.django_db,
    pytest.mark.usefixtures("frozen_time"),
]


@pytest.fixture
def charge(declare: Declare) -> JobTypeSpec:
    """A type whose jobs wait for their answer for a minute."""
    return declare("charge", timeout=60)(lambda job: hipq.WAIT)


def waiting(charge: JobTypeSpec, **options: Any) -> Job:
    job = charge.enqueue({"card": 1}, job_key="k", **options)
    run_due_jobs()
    job.refresh_from_db()
    return job


def test_the_deadline_counts_from_the_claim(charge: JobTypeSpec, frozen_time: Any) -> None:
    """T14."""
    job = charge.enqueue(job_key="k")
    frozen_time.shift(1_000)
    run_due_jobs()
    job.refresh_from_db()

    assert job.deadline - job.update_time == timedelta(seconds=60)
    assert job.state == "running"


@pytest.mark.parametrize("waits", [hipq.WAIT, hipq.WAIT_FOR("front")], ids=["one", "parts"])
def test_a_job_that_was_claimed_ahead_and_waits_for_its_answer_times_out(
    waits: Any, declare: Declare, frozen_time: Any
) -> None:
    """Otherwise its request would be sent again at each timeout, whatever its policy says."""
    charge = declare("charge", timeout=60)(lambda job: waits)
    jobs = [charge.enqueue(job_key=key) for key in "ab"]
    HandWorker(threads=1, ahead=1).work()
    assert Job.objects.filter(prefetched=True, phase="NONE").exists()

    frozen_time.shift(61)
    recovery.time_out_overdue(get_instance())

    for job in jobs:
        job.refresh_from_db()
        assert job.state == "error"
        assert [attempt.kind for attempt in job.attempts.all()] == ["timed_out"]


def test_the_retry_handler_decides_about_a_timeout(charge: JobTypeSpec, frozen_time: Any) -> None:
    """T14."""
    charge.on_error(lambda job: hipq.RetryIn(30) if "JobTimeout" in job.error else None)
    job = waiting(charge)

    frozen_time.shift(61)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.attempt) == ("retry", 1)


def test_a_handler_that_executes_for_too_long_times_out_and_its_result_is_too_late(
    declare: Declare, frozen_time: Any
) -> None:
    """T15."""
    declare("slow", timeout=60)(lambda job: "too late")
    job = hipq.enqueue("slow")
    worker = HandWorker()
    worker.run_pass()

    frozen_time.shift(61)
    assert recovery.time_out_overdue(get_instance()) == 1
    run_due_jobs()
    worker.execute()
    worker.save()

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("timed_out", None)
    assert job.error == "JobTimeout: attempt 1 did not end within 60 s"
    assert job.attempts.get().worker == worker.row.name


def test_the_late_result_of_one_attempt_does_not_end_the_next(
    declare: Declare, frozen_time: Any
) -> None:
    """T15: the attempt is the fencing token."""
    declare("slow", timeout=60, retry=hipq.Fixed(seconds=0))(lambda job: job.attempt)
    job = hipq.enqueue("slow")
    slow, quick = HandWorker(), HandWorker()
    slow.run_pass()
    frozen_time.shift(61)
    recovery.time_out_overdue(get_instance())
    quick.work()
    quick.run_pass()

    slow.execute()
    slow.save()
    job.refresh_from_db()
    between = (job.state, job.attempt)
    quick.execute()
    quick.save()

    job.refresh_from_db()
    assert between == ("running", 2)
    assert (job.outcome, job.result) == ("succeeded", 2)


def test_an_answer_after_the_last_timeout_is_kept_as_late(
    charge: JobTypeSpec, frozen_time: Any
) -> None:
    """T15."""
    job = waiting(charge)
    frozen_time.shift(61)
    run_due_jobs()

    answer = hipq.complete("charge", "k", response="sorry")

    job.refresh_from_db()
    assert (answer.status, answer.job) == ("late", job)
    assert (job.outcome, job.result) == ("timed_out", None)


def test_an_answer_while_the_timed_out_job_waits_for_its_retry_settles_it(
    charge: JobTypeSpec, frozen_time: Any
) -> None:
    charge.on_error(lambda job: hipq.RetryIn(600))
    job = waiting(charge)
    frozen_time.shift(61)
    run_due_jobs()

    answer = hipq.complete("charge", "k", response="here you are")

    job.refresh_from_db()
    assert (answer.status, job.outcome, job.result) == ("accepted", "succeeded", "here you are")
    assert job.attempt == 1


def test_a_response_that_is_in_does_not_time_out_while_no_worker_is_there(
    charge: JobTypeSpec, frozen_time: Any
) -> None:
    charge.on_response(lambda job, response: response)
    job = waiting(charge)
    hipq.complete("charge", "k", response="in time")

    frozen_time.shift(1_000_000)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "in time")
    assert job.attempts.count() == 0


def test_a_response_handler_has_the_whole_timeout_of_its_own(
    charge: JobTypeSpec, frozen_time: Any
) -> None:
    charge.on_response(lambda job, response: response)
    job = waiting(charge)
    hipq.complete("charge", "k", response="in time")
    frozen_time.shift(1_000)
    worker = HandWorker()
    worker.run_pass()

    frozen_time.shift(59)
    in_time = recovery.time_out_overdue(get_instance())
    frozen_time.shift(2)
    too_late = recovery.time_out_overdue(get_instance())

    assert (in_time, too_late) == (0, 1)
    job.refresh_from_db()
    assert job.state == "error"


def test_a_type_that_this_process_does_not_know_is_not_timed_out_here(
    declare: Declare, frozen_time: Any
) -> None:
    """T7."""
    declare("charge", timeout=60)(lambda job: hipq.WAIT)
    job = hipq.enqueue("charge")
    run_due_jobs()
    declare.forget_all()

    frozen_time.shift(61)
    run_due_jobs()

    job.refresh_from_db()
    assert job.state == "running"


def test_a_job_that_was_claimed_ahead_and_not_started_is_released(
    charge: JobTypeSpec, frozen_time: Any
) -> None:
    jobs = [charge.enqueue(job_key=key) for key in "ab"]
    HandWorker.crashed(threads=1, ahead=1)

    frozen_time.shift(61)
    recovery.time_out_overdue(get_instance())

    assert [Job.objects.get(pk=job.pk).state for job in jobs] == ["error", "retry"]
    assert [job.attempts.count() for job in jobs] == [1, 0]
