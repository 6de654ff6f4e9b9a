"""What hipq_django.testing gives to the tests of projects."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import TestCase

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.dependencies import unholding
from hipq_django.models import Job, Worker
from hipq_django.testing import (
    BrokenTransactionError,
    NotDrainedError,
    assert_enqueued,
    assert_finished,
    immediate,
    run_due_jobs,
    run_for,
)
from hipq_django.testing.running import Session
from tests.concurrency.test_duties import Process
from tests.declaring import Declare
from tests.noon import MONDAY_NOON
from tests.passing import Passing

pytestmark = pytest.mark.django_db


class InATestCase(TestCase):
    """The kit works inside Django's TestCase, whose transaction is never committed."""

    def test_what_runs_may_be_answered(self) -> None:
        job = hipq.enqueue("ask", job_key="k")
        run_due_jobs()

        hipq.complete("ask", "k", response="paid")

        job.refresh_from_db()
        assert job.outcome == "succeeded"


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

    with pytest.raises(hipq.HipqError, match=r"^•••") as raised:
        run_due_jobs()

    assert raised.type.__name__ == "ValueError"
    assert raised.traceback[-1].name == "charge"


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


def test_another_number_of_jobs_than_one_is_said() -> None:
    with pytest.raises(AssertionError, match="no job enqueued with 'ask'; there is no job of type"):
        assert_enqueued("ask")
    hipq.enqueue_many([hipq.NewJob("ask")] * 2)
    with pytest.raises(AssertionError, match="2 jobs enqueued with 'ask'"):
        assert_enqueued("ask")


def test_a_chain_longer_than_a_page_of_the_sweep_runs_to_its_end(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unholding, "MOST_AT_ONCE", 20)
    step = declare.task("step")(lambda number: number)
    jobs = hipq.chain(*(step.new(number) for number in range(50)))

    assert run_due_jobs() == 50

    assert hipq.get_result(jobs[-1].pk) == 49


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Passing:
    """The clock by which the kit knows how long jobs take."""
    return Passing(monkeypatch)


OF_NO_USE = {
    "recover_lost", "release_unconfirmed", "declare_schedules",
    "retire_schedules", "expire_early", "find_strays", "forget_workers", "warn_of_undeclared",
    "look_at_threads",
}  # fmt: skip
"""The duties of a worker that look for other processes, for what is old, or after its threads."""


def test_the_kit_does_each_duty_of_a_worker_that_is_of_use_in_a_test() -> None:
    with Session() as session:
        assert session.duties.keys() == Process().duties.keys() - OF_NO_USE


@pytest.mark.parametrize("frozen", [False, True])
def test_a_job_that_enqueues_itself_for_ever_is_told(declare: Declare, frozen: bool) -> None:
    @declare.task("shop.poll")
    def poll(number: int) -> None:
        poll.enqueue(number + 1)

    with ExitStack() as stack:
        if frozen:
            stack.enter_context(time_machine.travel(MONDAY_NOON, tick=False))
        poll.enqueue(0)
        with pytest.raises(NotDrainedError, match=r"of type 'shop\.poll'. Does it enqueue itself"):
            run_due_jobs(timeout=0.3)

    left = Job.objects.live().get()
    assert left.job_data == {"number": Job.objects.filter(outcome="succeeded").count()}
    assert not Worker.objects.exists()


@pytest.mark.usefixtures("hipq_jobs")  # puts the clock back
def test_what_is_due_at_one_moment_of_a_journey_is_bounded_too(
    declare: Declare, passing: Passing
) -> None:
    @declare("poll")
    def poll(job: Job) -> None:
        passing.seconds += 20
        hipq.enqueue("poll")

    hipq.enqueue("poll", delay=60)

    with pytest.raises(NotDrainedError):
        run_for(minutes=2, timeout=60)
    with immediate(timeout=60):
        with pytest.raises(NotDrainedError):
            hipq.enqueue("poll")
        Job.objects.live().delete()
        hipq.enqueue("echo")  # which ends


# Errors of the database, in the one transaction of a test


def write(name: str) -> None:
    User.objects.create(username=name)


def fail_in_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")


def write_twice(name: str) -> None:
    write(name)
    write(name)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("code", "kind"),
    [(partial(write_twice, "Ada"), IntegrityError), (fail_in_sql, DatabaseError)],
    ids=["orm", "sql"],
)
def test_a_job_that_fails_in_the_database_leaves_the_test_its_transaction(
    declare: Declare, code: Callable[[], None], kind: type[Exception]
) -> None:
    declare("broken", retry=hipq.Fixed(0, max_attempts=2))(lambda job: code())
    broken = hipq.enqueue("broken")
    other = hipq.enqueue("echo", "fine")

    with pytest.raises(kind):
        run_due_jobs()

    assert_finished(broken, "failed")
    assert_finished(other, result="fine")
    assert broken.attempts.count() == 2
    assert not User.objects.exists()


def test_a_job_that_goes_on_after_such_an_error_is_told_what_to_do(declare: Declare) -> None:
    @declare("careless")
    def careless(job: Job) -> str:
        with suppress(IntegrityError):
            write_twice("Ada")
        return "done"

    job = hipq.enqueue("careless")

    with pytest.raises(BrokenTransactionError, match=r"with transaction\.atomic\(\):"):
        run_due_jobs()

    assert_finished(job, "failed")


def test_what_a_job_has_written_stays_if_the_database_took_it(declare: Declare) -> None:
    @declare("careful")
    def careful(job: Job) -> None:
        write("Ada")
        with suppress(IntegrityError), transaction.atomic():
            write("Ada")
        raise ValueError("Ada is there")

    hipq.enqueue("careful")

    with pytest.raises(ValueError, match="Ada is there"):
        run_due_jobs()

    assert User.objects.get().username == "Ada"


@pytest.mark.parametrize("retry", [hipq.Never(), hipq.Fixed(60), None])
def test_what_jobs_raised_is_freed_at_once(
    declare: Declare, caplog: pytest.LogCaptureFixture, retry: Any
) -> None:
    """Kept in a circle, an HTTPError would close its socket at some later time, with a warning."""

    class ReplyError(Exception):
        pass

    raised: list[weakref.ref[ReplyError]] = []

    @declare("refused", retry=retry)
    def refused(job: Job) -> None:
        error = ReplyError("400")
        raised.append(weakref.ref(error))
        raise error

    if retry is None:
        refused.on_error(lambda job: hipq.GiveUp())

    caplog.set_level(logging.CRITICAL, logger="hipq_django")  # what is captured is kept
    for _ in range(3):
        refused.enqueue()
    gc.disable()
    try:
        run_due_jobs(raise_errors=False)
        assert [error() for error in raised] == [None, None, None]
    finally:
        gc.enable()
