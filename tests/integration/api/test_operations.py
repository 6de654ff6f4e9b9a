"""What an operator does to jobs: cancel, run now, requeue."""

from __future__ import annotations

from collections.abc import Callable
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


def test_cancelling_is_no_attempt() -> None:
    job = JobFactory.create()

    hipq.cancel(job)

    job.refresh_from_db()
    assert (job.attempt, job.attempts.count()) == (0, 0)


def test_the_given_copy_is_brought_up_to_date() -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    hipq.cancel(job)

    assert (job.state, job.outcome, job.attempt) == ("final", "cancelled", 1)


def test_a_final_job_cannot_be_cancelled() -> None:
    job = JobFactory.create(state=State.FINAL)
    before = row(job)

    with pytest.raises(hipq.InvalidJobError, match=r"is final \(succeeded\), so there is nothing"):
        hipq.cancel(job)

    assert row(job) == before


def test_a_cancelled_job_does_not_run() -> None:
    hipq.cancel(hipq.enqueue("echo"))

    assert run_due_jobs() == 0


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


@pytest.mark.conformance
def test_a_rolled_back_cancel_never_was() -> None:
    job = hipq.enqueue("echo")

    with transaction.atomic():
        hipq.cancel(job)
        transaction.set_rollback(True)

    assert row(job)["state"] == "initial"


@pytest.mark.parametrize("verb", [hipq.cancel, hipq.run_now])
def test_a_job_that_is_not_there_is_refused(verb: Callable[[Job], Job]) -> None:
    job = JobFactory.create()
    Job.objects.all().delete()

    with pytest.raises(hipq.InvalidJobError, match="does not exist any more"):
        verb(job)
    with pytest.raises(hipq.InvalidJobError, match="was never enqueued"):
        verb(Job())


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


def test_run_now_drops_the_time_windows(frozen_time: Any) -> None:
    job = hipq.enqueue("echo", time_windows=["05:00-07:00"])

    hipq.run_now(job)

    assert (job.time_windows, row(job)["time_windows"]) == ([], [])
    assert run_due_jobs() == 1


def test_run_now_leaves_a_job_that_is_due_at_its_place(frozen_time: Any) -> None:
    first, second = hipq.enqueue("echo", 1), hipq.enqueue("echo", 2)
    place = (first.scheduled_run_time, first.rank)
    frozen_time.shift(3_600)
    third = hipq.enqueue("echo", 3)

    hipq.run_now(first)

    assert (row(first)["scheduled_run_time"], row(first)["rank"]) == place
    assert [claim.id for claim in HandWorker().run_pass()] == [first.pk, second.pk, third.pk]


@pytest.mark.conformance
def test_run_now_puts_the_job_where_its_time_belongs() -> None:
    waiting = hipq.enqueue("echo", {"n": 1}, scheduled_run_time=clock.now("default"))
    job = hipq.enqueue("echo", scheduled_run_time=clock.now("default") + timedelta(days=1))

    hipq.run_now(job)

    assert job.rank == job.queue.ordering.rank(job.scheduled_run_time, job.priority)
    assert row(job)["rank"] == job.rank >= waiting.rank


@pytest.mark.parametrize("state", ["running", "error", "final"])
def test_only_a_waiting_job_can_be_run_now(state: str) -> None:
    job = JobFactory.create(state=state)
    before = row(job)

    with pytest.raises(hipq.InvalidJobError, match=f"run_now: .* is {state}"):
        hipq.run_now(job)

    assert row(job) == before


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


def test_a_requeued_job_runs() -> None:
    job = hipq.enqueue("echo", "hello")
    run_due_jobs()

    fresh = hipq.requeue(job)
    run_due_jobs()

    fresh.refresh_from_db()
    assert (fresh.outcome, fresh.result) == ("succeeded", "hello")


@pytest.mark.parametrize("state", LIVE)
def test_an_unfinished_job_cannot_be_requeued(state: State) -> None:
    job = JobFactory.create(state=state)

    with pytest.raises(hipq.InvalidJobError, match=f"requeue: .* is {state}; only final jobs"):
        hipq.requeue(job)

    assert Job.objects.count() == 1


def test_a_stale_copy_is_read_anew_before_it_is_requeued() -> None:
    job = hipq.enqueue("echo")
    run_due_jobs()

    assert hipq.requeue(job).origin == job


@pytest.mark.conformance
def test_a_key_that_is_in_use_again_is_not_requeued() -> None:
    job = hipq.enqueue("echo", job_key="k")
    run_due_jobs()
    taken = hipq.enqueue("echo", job_key="k")

    with transaction.atomic(), pytest.raises(hipq.DuplicateJobKeyError) as caught:
        hipq.requeue(job)

    assert str(caught.value) == (
        f"requeue: job type 'echo' has a live job with key 'k': job {taken.pk} is initial. "
        "It has to end first, or to be cancelled."
    )
    assert caught.value.job == taken
    assert Job.objects.live().get() == taken


def test_a_pruned_job_cannot_be_requeued() -> None:
    job = JobFactory.create(state="final")
    Job.objects.all().delete()

    with pytest.raises(hipq.InvalidJobError, match="does not exist any more"):
        hipq.requeue(job)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Europe", "../zones"])
def test_a_time_zone_that_this_machine_lacks_is_told_with_the_way_out(zone: str) -> None:
    """A worker on another machine, with newer zone data, may have written it."""
    JobTypeFactory.create(name="nightly", time_zone=zone, default_time_windows=["01:00-02:00"])

    with pytest.raises(hipq.ConfigurationError, match=r"'nightly' has time zone .* tzdata"):
        hipq.enqueue("nightly")
