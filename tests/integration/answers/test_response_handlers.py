"""Response handlers: run by a worker on the stored answer, and run again when they fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import hipq_django as hipq
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.job_types.registry import forget
from hipq_django.models import Job, JobType
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


class Partner:
    """Counts what is asked and handled; `broken` response handlers raise."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.responses: list[Any] = []
        self.broken = False

    def ask(self, job: Job) -> Any:
        self.requests.append(job.attempt)
        return hipq.WAIT

    def handle(self, job: Job, response: Any) -> Any:
        self.responses.append(response)
        if self.broken:
            raise OSError("our own database")
        return {"handled": response}


@pytest.fixture
def partner() -> Partner:
    return Partner()


@pytest.fixture
def charge(declare: Declare, partner: Partner) -> JobTypeSpec:
    charge = declare("charge")(partner.ask)
    charge.on_response(partner.handle)
    return charge


def answered(charge: JobTypeSpec, response: Any = "paid") -> Job:
    job = charge.enqueue(job_key="k")
    run_due_jobs()
    hipq.complete("charge", "k", response=response)
    return job


def test_an_async_response_handler_is_awaited(declare: Declare, partner: Partner) -> None:
    charge = declare("charge")(partner.ask)

    @charge.on_response
    async def handle(job: Job, response: Any) -> Any:
        return [response]

    job = answered(charge)
    run_due_jobs()

    job.refresh_from_db()
    assert job.result == ["paid"]


# Failures


def test_a_snoozing_response_handler_runs_again(
    declare: Declare, partner: Partner, frozen_time: Any
) -> None:
    charge = declare("charge")(partner.ask)

    @charge.on_response
    def handle(job: Job, response: Any) -> Any:
        if job.attempt == 1:
            raise hipq.Snooze(60)
        return response

    job = answered(charge)
    run_due_jobs()
    frozen_time.shift(60)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.result, partner.requests) == ("succeeded", "paid", [1])
    assert job.attempts.count() == 0


def not_json(job: Job, response: Any) -> Any:
    return {response}


def leaves(job: Job, response: Any) -> NoReturn:
    raise SystemExit(1)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (not_json, "the result of 'charge' is not JSON"),
        (leaves, "SystemExit: 1"),
    ],
)
def test_a_response_handler_that_makes_a_mistake_fails_the_attempt(
    handler: Callable[..., Any], error: str, declare: Declare, partner: Partner
) -> None:
    charge = declare("charge")(partner.ask)
    charge.on_response(handler)
    job = answered(charge)

    run_due_jobs()

    job.refresh_from_db()
    assert job.outcome == "failed"
    assert error in job.error


# Two releases


def complete_many(job_type: str, key: str, response: Any) -> None:
    """Like `complete`, as a consumer does it; a second message keeps it from being one alone."""
    hipq.receive_many(
        [hipq.NewAnswer(job_type, key, response=response), hipq.NewAnswer(job_type, "other")]
    )


def sent_by_the_release_before(declare: Declare, partner: Partner) -> tuple[JobTypeSpec, Job]:
    """A job that waits; this process has the code of before the response handler was added."""
    charge = declare("charge")(partner.ask)
    job = charge.enqueue(job_key="k")
    run_due_jobs()
    JobType.objects.filter(name="charge").update(has_response_handler=True)
    return charge, job


@pytest.mark.parametrize("answer", [hipq.complete, complete_many])
def test_an_answer_that_the_release_before_receives_waits_for_its_handler(
    answer: Callable[..., Any], declare: Declare, partner: Partner
) -> None:
    old, job = sent_by_the_release_before(declare, partner)

    answer("charge", "k", response="paid")

    job.refresh_from_db()
    assert (job.state, job.has_pending_answer) == ("running", True)
    forget(old)
    declare("charge")(partner.ask).on_response(partner.handle)
    run_due_jobs()
    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", {"handled": "paid"})


def test_a_worker_of_the_release_before_leaves_an_answer_to_its_handler(
    declare: Declare, partner: Partner, frozen_time: Any
) -> None:
    old, job = sent_by_the_release_before(declare, partner)
    hipq.complete("charge", "k", response="paid")

    HandWorker().work()

    job.refresh_from_db()
    assert (job.state, job.has_pending_answer) == ("retry", True)
    assert job.error == "no response handler for job type 'charge' in this worker"
    forget(old)
    declare("charge")(partner.ask).on_response(partner.handle)
    frozen_time.shift(60)
    run_due_jobs()
    job.refresh_from_db()
    assert (job.outcome, job.result, partner.requests) == ("succeeded", {"handled": "paid"}, [1])
