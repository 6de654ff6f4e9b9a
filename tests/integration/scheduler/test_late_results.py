"""Successes of handlers whose attempt was given up, while no new attempt has begun."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Worker
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.hand_worker import HandWorker
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


given_up = pytest.mark.parametrize("give_up", [lose, time_out])


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


@given_up
@pytest.mark.parametrize("handler", [raise_oserror, wait, wait_for_two])
@pytest.mark.parametrize("is_decided", [False, True])
def test_an_error_or_a_request_does_not_count(
    declare: Declare,
    give_up: Callable[[HandWorker], None],
    handler: Callable[[Job], Any],
    is_decided: bool,
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(handler)
    job = hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    give_up(worker)
    if is_decided:
        decide()
    before, error = row_of(job), job.error

    bring(worker)

    assert (row_of(job), job.error) == (before, error)
    assert job.attempts.get().error == error
    assert worker.batch.ids == []


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
