"""What an operator does to jobs: cancel, run now, requeue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.domain.states import State
from hipq_django.models import Job
from tests.declaring import Declare
from tests.factories import JobFactory, JobTypeFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

LIVE = [state for state in State if state != State.FINAL]


def row(job: Job) -> dict[str, Any]:
    return dict(Job.objects.filter(pk=job.pk).values().get())


# Cancel


@pytest.mark.conformance
@pytest.mark.parametrize("state", LIVE)
def test_a_live_job_can_be_cancelled(state: State) -> None:
    job = JobFactory.create(state=state)

    returned = hipq.cancel(job)

    assert returned is job
    job.refresh_from_db()
    assert (job.state, job.outcome, job.error) == ("final", "cancelled", "Cancelled")
    assert job.worker is None


@pytest.mark.parametrize("data", ["returns", "raises", "waits"])
def test_what_a_cancelled_handler_does_is_dropped(data: str, declare: Declare) -> None:
    @declare("stubborn", retry=hipq.Fixed(seconds=0))
    def stubborn(job: Job) -> Any:
        if job.job_data == "raises":
            raise OSError
        return hipq.WAIT if job.job_data == "waits" else "done"

    job = stubborn.enqueue(data)
    worker = HandWorker()
    worker.run_pass()

    hipq.cancel(job)
    before = row(job)
    worker.execute()
    worker.save()
    run_due_jobs()

    assert row(job) == before
    assert job.attempts.count() == 0


# Run now


@pytest.mark.conformance
@pytest.mark.parametrize("state", ["initial", "retry"])
def test_a_waiting_job_can_be_run_now(state: str) -> None:
    job = hipq.enqueue("echo", scheduled_run_time=clock.now("default") + timedelta(days=1))
    if state == "retry":
        job = JobFactory.create(
            job_type=job.job_type, state="retry",
            scheduled_run_time=clock.now("default") + timedelta(days=1),
        )  # fmt: skip

    hipq.run_now(job)

    assert run_due_jobs() == 1
    job.refresh_from_db()
    assert job.outcome == "succeeded"


def test_run_now_leaves_a_job_that_is_due_at_its_place(frozen_time: Any) -> None:
    first, second = hipq.enqueue("echo", 1), hipq.enqueue("echo", 2)
    place = (first.scheduled_run_time, first.rank)
    frozen_time.shift(3_600)
    third = hipq.enqueue("echo", 3)

    hipq.run_now(first)

    assert (row(first)["scheduled_run_time"], row(first)["rank"]) == place
    assert [claim.id for claim in HandWorker().run_pass()] == [first.pk, second.pk, third.pk]


def test_run_now_does_not_break_the_pause_of_its_queue() -> None:
    job = hipq.enqueue("echo", scheduled_run_time=clock.now("default") + timedelta(days=1))
    job.queue.paused = True
    job.queue.save()

    hipq.run_now(job)

    assert run_due_jobs() == 0


# Requeue


@pytest.mark.conformance
def test_a_final_job_can_be_requeued_as_a_fresh_one(declare: Declare) -> None:
    declare("flaky")(lambda job: 1 / 0)
    old = hipq.enqueue(
        "flaky", {"a": 1}, job_key="k", priority=7, throttle_factor=2, timeout=60, queue="bank",
        time_windows=["00:00-24:00"],
    )  # fmt: skip
    run_due_jobs()
    before = row(old)

    fresh = hipq.requeue(old)

    fresh.refresh_from_db()
    assert fresh.pk != old.pk
    assert (fresh.state, fresh.attempt, fresh.error, fresh.origin) == ("initial", 0, "NONE", old)
    copied = ("job_data", "job_key", "priority", "throttle_factor", "timeout", "time_windows")
    assert [getattr(fresh, n) for n in copied] == [before[n] for n in copied]
    assert fresh.queue.name == "bank"
    assert row(old) == before


@pytest.mark.conformance
def test_a_key_that_is_in_use_again_is_not_requeued() -> None:
    job = hipq.enqueue("echo", job_key="k")
    run_due_jobs()
    taken = hipq.enqueue("echo", job_key="k")

    with transaction.atomic(), pytest.raises(hipq.DuplicateJobKeyError) as caught:
        hipq.requeue(job)

    assert str(caught.value) == (
        f"requeue: job type 'echo' has a live job with key 'k': job {taken.pk} is initial. "
        "Let it end, or be pruned, first; use another key; or enqueue with on_conflict='return'."
    )
    assert caught.value.job == taken
    assert Job.objects.live().get() == taken


def test_a_time_zone_that_this_machine_lacks_is_told_with_the_way_out() -> None:
    """A worker on another machine, with newer zone data, may have written it."""
    JobTypeFactory.create(
        name="nightly", time_zone="Mars/Olympus", default_time_windows=["01:00-02:00"]
    )

    with pytest.raises(hipq.ConfigurationError, match=r"'nightly' has time zone .* tzdata"):
        hipq.enqueue("nightly")
