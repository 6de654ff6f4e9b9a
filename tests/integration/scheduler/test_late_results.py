"""What a handler brings after its attempt was given up, while nobody has begun it anew."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import TestCase

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.domain.suspects import SUSPECT
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Queue, Worker
from hipq_django.signals import job_failed
from tests.declaring import Declare
from tests.factories import AttemptFactory, JobFactory, WorkerFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def succeed(_: Job) -> str:
    return "done"


def wait(_: Job) -> Any:
    return hipq.WAIT


def wait_for_two(_: Job) -> Any:
    return hipq.WAIT_FOR("front", "back")


def raise_oserror(_: Job) -> None:
    raise OSError("no route")


def lose(worker: HandWorker) -> None:
    worker.die()
    assert recovery.recover_lost(get_instance()) == 1


def lose_beside_a_suspect(worker: HandWorker) -> None:
    """As `lose`, but another job of the worker is a likelier killer: one without code here."""
    suspect = JobFactory.create(state="running", worker=worker.row, attempt=2)
    AttemptFactory.create(job=suspect, attempt=1, kind="worker_lost", error=SUSPECT)
    worker.die()
    assert recovery.recover_lost(get_instance()) == 2


def time_out(worker: HandWorker) -> None:
    overdue = clock.now("default") - timedelta(seconds=1)
    Job.objects.running().update(deadline=overdue)
    assert recovery.time_out_overdue(get_instance()) == 1


def bring(worker: HandWorker) -> None:
    """Let the handlers that were started return, and write what they return."""
    worker.execute()
    worker.save()


def decide() -> None:
    """Decide about the error, and claim nothing."""
    worker = HandWorker(threads=1)
    worker.run_pass()
    worker.execute()
    worker.save()


given_up = pytest.mark.parametrize("give_up", [lose, lose_beside_a_suspect, time_out])


def row_of(job: Job) -> tuple[Any, ...]:
    job.refresh_from_db()
    return job.state, job.outcome, job.result, job.worker_id


@given_up
@pytest.mark.parametrize("is_decided", [False, True])
def test_a_success_counts(
    declare: Declare, give_up: Callable[[HandWorker], None], is_decided: bool
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(succeed)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    give_up(worker)
    if is_decided:
        decide()
    state = row_of(job)[0]

    bring(worker)

    assert state == ("retry" if is_decided else "error")
    assert row_of(job) == ("final", "succeeded", "done", None)
    assert (job.error, job.attempt, job.attempts.count()) == ("NONE", 1, 1)
    assert worker.batch.ids == []


@given_up
def test_nothing_counts_once_the_job_was_claimed_again(
    declare: Declare, give_up: Callable[[HandWorker], None]
) -> None:
    declare("work", retry=hipq.Fixed(seconds=0))(succeed)
    job = hipq.enqueue("work")
    worker, other = HandWorker(), HandWorker()
    worker.run_pass()
    give_up(worker)
    other.work()
    assert other.run_pass() == [job]

    bring(worker)

    assert row_of(job) == ("running", "NONE", None, other.row.pk)


@pytest.mark.parametrize("handler", [succeed, raise_oserror, wait])
def test_a_process_that_was_given_up_and_registered_anew_writes_its_results(
    declare: Declare, handler: Callable[[Job], Any]
) -> None:
    """Nobody has taken the job over: it is still in the hands of the process's former row."""
    declare("work", retry=hipq.Fixed(seconds=60))(handler)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    Worker.objects.update(state="lost")
    worker.scheduler.worker = WorkerFactory.create()

    bring(worker)

    assert row_of(job)[3] is None
    assert job.error in ("NONE", "OSError: no route")
    assert job.attempts.filter(kind="worker_lost").count() == 0


def test_the_hands_of_another_process_are_not_those_of_this_one(declare: Declare) -> None:
    declare("work")(succeed)
    job = hipq.enqueue("work")
    worker, other = HandWorker(), HandWorker()
    worker.run_pass()
    Job.objects.update(worker=other.row)

    bring(worker)

    assert row_of(job) == ("running", "NONE", None, other.row.pk)


@given_up
def test_an_error_takes_the_place_of_the_guess_until_that_is_decided_about(
    declare: Declare, give_up: Callable[[HandWorker], None]
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(raise_oserror)
    first, second = hipq.enqueue("work"), None
    worker = HandWorker()
    worker.run_pass()
    give_up(worker)
    bring(worker)
    undecided = (row_of(first)[0], first.error, first.attempts.get().kind)
    decide()
    second = hipq.enqueue("work")
    late = HandWorker()
    late.run_pass()
    give_up(late)
    decide()
    bring(late)

    assert undecided == ("error", "OSError: no route", "raised")
    assert row_of(first)[0] == "retry"
    assert row_of(second)[0] == "retry"
    assert str(second.error).startswith(("WorkerLost", "JobTimeout"))


@given_up
def test_what_says_only_that_the_attempt_is_over_takes_no_place(
    declare: Declare, give_up: Callable[[HandWorker], None]
) -> None:
    @declare("work")
    def work(job: Job) -> None:
        job.step("pay", dict)

    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    give_up(worker)
    guess = Job.objects.get(pk=job.pk).error

    bring(worker)

    job.refresh_from_db()
    assert (job.state, job.error) == ("error", guess)
    assert job.attempts.get().error == guess
    assert worker.batch.ids == []


def test_the_error_that_takes_a_losss_place_counts_as_no_loss(declare: Declare) -> None:
    """The policy names it, or not, as any other."""
    declare("work", retry=hipq.Fixed(seconds=60, only=(ValueError,)))(raise_oserror)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)

    bring(worker)
    decide()

    assert row_of(job) == ("final", "failed", None, None)


@pytest.mark.parametrize("handler", [wait, wait_for_two])
@pytest.mark.parametrize("is_decided", [False, True])
def test_a_request_that_was_sent_is_waited_for(
    declare: Declare, handler: Callable[[Job], Any], is_decided: bool
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(handler)
    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)
    if is_decided:
        decide()

    bring(worker)
    waiting = (*row_of(job), job.attempt, job.error, job.attempts.count())
    if handler is wait:
        hipq.complete("work", "k", response="paid")
    else:
        for part in ("front", "back"):
            hipq.complete("work", "k", response=part, part=part)

    assert waiting == ("running", "NONE", None, None, 1, "NONE", 0)
    assert row_of(job)[:2] == ("final", "succeeded")


def test_a_part_that_came_meanwhile_is_counted(declare: Declare) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(wait_for_two)
    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)
    decide()
    hipq.complete("work", "k", response=1, part="front")

    bring(worker)
    hipq.complete("work", "k", response=2, part="back")

    assert row_of(job)[:3] == ("final", "succeeded", {"front": 1, "back": 2})


def test_a_request_whose_time_is_over_is_not_waited_for(declare: Declare) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(wait)
    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    time_out(worker)

    bring(worker)

    assert row_of(job)[0] == "error"


def test_a_request_whose_job_has_another_key_by_now_is_not_waited_for(declare: Declare) -> None:
    work = declare("work")(wait)

    @work.on_error
    def other_key(job: Job) -> hipq.RetryIn:
        job.job_key = "other"
        return hipq.RetryIn(60)

    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)
    decide()

    bring(worker)

    assert (row_of(job)[0], job.job_key) == ("retry", "other")


@pytest.mark.parametrize(("limit", "fits"), [(2, True), (1, False)])
def test_a_request_is_only_waited_for_under_the_limit(
    declare: Declare, limit: int, fits: bool
) -> None:
    Queue.objects.create(name="limited", throttle_limit=limit)
    declare("work", queue="limited", retry=hipq.Fixed(seconds=60))(wait)
    job = hipq.enqueue("work", job_key="k")
    worker, other = HandWorker(threads=1), HandWorker(threads=1)
    worker.run_pass()
    lose(worker)
    decide()
    hipq.enqueue("work")
    assert len(other.run_pass()) == 1

    bring(worker)

    assert row_of(job)[0] == ("running" if fits else "retry")
    assert Job.objects.running().count() == limit


def test_where_throttlers_decide_a_request_is_not_waited_for(
    declare: Declare, configure_queue: ConfigureQueue
) -> None:
    configure_queue(hipq.KeyLimit("tenant", 1))
    declare("work", retry=hipq.Fixed(seconds=60))(wait)
    job = hipq.enqueue("work", {"tenant": 1}, job_key="k")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)

    bring(worker)

    assert row_of(job)[0] == "error"


# Answers go first


def test_an_answer_goes_before_a_late_success(declare: Declare) -> None:
    work = declare("work", retry=hipq.Fixed(seconds=60))(succeed)
    work.on_response(lambda job, response: response)
    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)
    hipq.complete("work", "k", response="paid")

    bring(worker)
    run_due_jobs()

    assert row_of(job)[:3] == ("final", "succeeded", "paid")


def test_an_error_answer_goes_before_a_late_success(declare: Declare) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(succeed)
    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    hipq.fail("work", "k", error="declined")

    bring(worker)

    assert (row_of(job)[0], job.error) == ("error", "declined")


def test_what_a_response_handler_made_of_the_answer_counts_late(declare: Declare) -> None:
    work = declare("work", retry=hipq.Fixed(seconds=60))(wait)
    work.on_response(lambda job, response: [response])
    job = hipq.enqueue("work", job_key="k")
    HandWorker().work()
    hipq.complete("work", "k", response="paid")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)

    bring(worker)

    assert row_of(job)[:3] == ("final", "succeeded", ["paid"])
    assert not job.has_pending_answer


def test_an_answer_that_was_set_aside_takes_its_late_result_along(declare: Declare) -> None:
    work = declare("work")(wait)
    work.on_response(lambda job, response: [response])
    work.on_error(lambda job: hipq.RetryIn(60, resend=True))
    job = hipq.enqueue("work", job_key="k")
    HandWorker().work()
    hipq.complete("work", "k", response="paid")
    worker = HandWorker()
    worker.run_pass()
    lose(worker)
    decide()

    bring(worker)

    assert row_of(job)[:3] == ("retry", "NONE", None)


@given_up
def test_a_cancelled_job_stays_cancelled(
    declare: Declare, give_up: Callable[[HandWorker], None]
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(succeed)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    give_up(worker)
    hipq.cancel(job)

    bring(worker)

    assert row_of(job)[:3] == ("final", "cancelled", None)


def raise_connection_error(_: Job) -> None:
    raise ConnectionError("no route")


def test_an_error_that_comes_while_its_own_worker_decides_about_the_timeout_does_not_count(
    declare: Declare,
) -> None:
    """As beside another worker: the decision about the guess has begun."""
    declare("work", retry=hipq.Fixed(60, only=(ConnectionError,)))(raise_connection_error)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    time_out(worker)
    handler, worker.claims = worker.claims, []
    worker.run_pass()
    deciding, worker.claims = worker.claims, handler
    assert [claim.phase for claim in deciding] == ["decision"]

    bring(worker)
    between = (row_of(job)[0], job.worker_id)
    worker.claims = deciding
    bring(worker)

    assert between == ("error", worker.row.pk)
    assert row_of(job)[:2] == ("final", "timed_out")
    assert [one.kind for one in job.attempts.all()] == ["timed_out"]


def test_no_signal_says_that_an_attempt_failed_twice(declare: Declare) -> None:
    heard: list[str] = []

    def hear(job: Job, exception: BaseException | None, **_: Any) -> None:
        heard.append(str(job.error))

    declare("work", retry=hipq.Fixed(60))(raise_connection_error)
    hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    time_out(worker)
    handler, worker.claims = worker.claims, []
    worker.run_pass()
    worker.claims = handler
    job_failed.connect(hear)
    try:
        with TestCase.captureOnCommitCallbacks(execute=True):
            bring(worker)
    finally:
        job_failed.disconnect(hear)

    assert heard == []
