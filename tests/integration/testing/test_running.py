"""What hipq_django.testing gives to the tests of projects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import TestCase

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.dependencies import unholding
from hipq_django.models import Job, Queue, Worker
from hipq_django.scheduler import companions
from hipq_django.testing import assert_enqueued, run_due_jobs
from hipq_django.testing.running import Session
from tests.concurrency.test_duties import Process
from tests.declaring import Declare

pytestmark = pytest.mark.django_db


class InATestCase(TestCase):
    """The kit works inside Django's TestCase, whose transaction is never committed."""

    def test_due_jobs_run(self) -> None:
        job = hipq.enqueue("echo", "hello")

        assert run_due_jobs() == 1

        job.refresh_from_db()
        assert job.result == "hello"

    def test_what_runs_may_be_answered(self) -> None:
        job = hipq.enqueue("ask", job_key="k")
        run_due_jobs()

        hipq.complete("ask", "k", response="paid")

        job.refresh_from_db()
        assert job.outcome == "succeeded"


def test_what_becomes_due_by_running_is_run_too(declare: Declare) -> None:
    @declare("first")
    def first(job: Job) -> None:
        hipq.enqueue("echo")

    hipq.enqueue("first")

    assert run_due_jobs() == 2


@pytest.mark.parametrize(("has_follower", "admitted"), [(False, [1, 0]), (True, [1, 0, 1, 0, 0])])
def test_without_companions_few_passes_find_nothing(
    has_follower: bool, admitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One runs a job and one writes it. Where there are links, one more looks for followers."""
    monkeypatch.setattr(companions, "registered", {})
    job = hipq.enqueue("echo")
    if has_follower:
        hipq.enqueue_many([hipq.NewJob("echo", after=[job])])

    with Session() as session:
        passes, run_once = [], session.scheduler.run_once
        monkeypatch.setattr(session.scheduler, "run_once", lambda: passes.append(run_once()))
        session.run_due()

    assert passes == admitted
    assert not Job.objects.live().exists()


def test_each_handler_that_ran_is_counted(declare: Declare) -> None:
    declare("flaky", retry=hipq.Fixed(seconds=0, max_attempts=3))(lambda job: 1 / 0)
    hipq.enqueue("flaky")

    assert run_due_jobs(raise_errors=False) == 3


def test_what_a_handler_raised_is_raised_with_its_own_lines(declare: Declare) -> None:
    def charge(job: Job) -> None:
        raise ValueError(job.job_data)

    declare("charge", retry=hipq.Fixed(seconds=60))(charge)
    good = hipq.enqueue("echo", scheduled_run_time=clock.now("default"))
    hipq.enqueue_many([hipq.NewJob("charge", "first"), hipq.NewJob("charge", "second")])

    with pytest.raises(ValueError, match="first") as raised:
        run_due_jobs()

    assert raised.traceback[-1].name == "charge"
    notes = " ".join(raised.value.__notes__)
    assert "another handler raised ValueError: second" in notes
    assert "run_due_jobs(raise_errors=False)" in notes
    good.refresh_from_db()
    assert good.outcome == "succeeded"


def test_what_a_retry_handler_raised_is_raised_too(declare: Declare) -> None:
    """Nothing else tells of it: the job keeps the error that was to be decided about."""
    charge = declare("charge")(lambda job: hipq.WAIT)

    @charge.on_error
    def after_error(job: Job) -> None:
        raise NameError(job.error)

    job = charge.enqueue(job_key="order-7")
    run_due_jobs()
    charge.fail("order-7", "card stolen")

    with pytest.raises(NameError, match="card stolen") as raised:
        run_due_jobs()

    assert raised.traceback[-1].name == "after_error"
    job.refresh_from_db()
    assert (job.outcome, job.error) == ("failed", "card stolen")


def test_what_other_systems_answer_is_not_raised(declare: Declare) -> None:
    declare("charge")(lambda job: hipq.WAIT)
    hipq.enqueue("charge", job_key="order-7")
    run_due_jobs()
    hipq.fail("charge", "order-7", "card stolen")

    assert run_due_jobs() == 0


def test_what_a_job_with_sensitive_fields_raised_is_masked(declare: Declare) -> None:
    @declare("charge", sensitive=["card"])
    def charge(job: Job) -> None:
        raise ValueError(job.job_data["card"])

    charge.enqueue({"card": "4111 1111"})

    with pytest.raises(hipq.HipqError, match=r"^ValueError: •••") as raised:
        run_due_jobs()

    assert raised.traceback[-1].name == "charge"


def test_an_order_that_a_job_changes_is_the_order_of_the_others(declare: Declare) -> None:
    declare("follows")(lambda job: Queue.objects.update(order="priority"))
    later = hipq.enqueue("follows", priority=7, delay=60)
    hipq.enqueue("follows")

    assert run_due_jobs() == 1

    later.refresh_from_db()
    assert later.rank == Queue.objects.get().ordering.rank(later.scheduled_run_time, 7)


def test_nothing_due_is_nothing_run() -> None:
    hipq.enqueue("echo", scheduled_run_time=clock.now("default") + timedelta(hours=1))

    assert run_due_jobs() == 0


def test_no_worker_is_left_behind() -> None:
    hipq.enqueue("echo")
    run_due_jobs()

    assert Worker.objects.count() == 0


def test_an_error_of_the_scheduler_is_not_hidden(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test sees what went wrong, not that the worker's row could not be deleted."""

    def stop(job: Job) -> None:
        raise KeyboardInterrupt

    declare("stop")(stop)
    hipq.enqueue("stop")

    with pytest.raises(KeyboardInterrupt):
        run_due_jobs()


# assert_enqueued


def test_the_enqueued_job_is_returned() -> None:
    job = hipq.enqueue("ask", {"order": 42}, job_key="order-42", priority=10)

    assert assert_enqueued("ask") == job
    assert assert_enqueued("ask", job_key="order-42", priority=10) == job
    assert assert_enqueued("ask", job_data={"order": 42}, state="initial") == job


@pytest.mark.parametrize("values", [{"job_key": "order-43"}, {"priority": 1}, {"job_data": {}}])
def test_a_job_with_other_values_is_not_the_one(values: dict[str, Any]) -> None:
    hipq.enqueue("ask", {"order": 42}, job_key="order-42")

    with pytest.raises(AssertionError, match=r"(?s)no job enqueued with 'ask', .*order-42"):
        assert_enqueued("ask", **values)


def test_no_job_at_all_says_so() -> None:
    with pytest.raises(AssertionError, match="no job enqueued with 'ask'; there is no job of type"):
        assert_enqueued("ask")


def test_two_jobs_are_one_too_many() -> None:
    hipq.enqueue("ask")
    hipq.enqueue("ask")

    with pytest.raises(AssertionError, match="2 jobs enqueued with 'ask'"):
        assert_enqueued("ask")


def test_a_final_job_is_not_enqueued_any_more() -> None:
    hipq.enqueue("echo")
    run_due_jobs()

    with pytest.raises(AssertionError, match="no job enqueued"):
        assert_enqueued("echo")


def test_a_chain_longer_than_a_page_of_the_sweep_runs_to_its_end(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unholding, "MOST_AT_ONCE", 20)
    step = declare.task("step")(lambda number: number)
    jobs = hipq.chain(*(step.new(number) for number in range(50)))

    assert run_due_jobs() == 50

    assert hipq.get_result(jobs[-1].pk) == 49


def test_held_jobs_behind_a_page_that_cannot_go_on_are_found(declare: Declare) -> None:
    """No job that this test runs ends what they wait for: only the sweep can find them."""
    step = declare.task("step")(lambda: None)
    later, before = step.using(delay=3_600).enqueue(), step.using(delay=3_600).enqueue()
    hipq.enqueue_many(step.using(after=[later]).new() for _ in range(500))
    last = step.using(after=[before]).enqueue()
    hipq.cancel(before)

    run_due_jobs()

    last.refresh_from_db()
    assert last.outcome == "cancelled"


OF_NO_USE = {
    "recover_lost", "release_unconfirmed", "shut_dead_connections", "declare_schedules",
    "retire_schedules", "expire_early", "find_strays", "forget_workers", "warn_of_undeclared",
}  # fmt: skip
"""The duties of a worker that look for other processes, or for what is old."""


def test_the_kit_does_each_duty_of_a_worker_that_is_of_use_in_a_test() -> None:
    with Session() as session:
        assert list(session.duties) == [name for name in Process().duties if name not in OF_NO_USE]
