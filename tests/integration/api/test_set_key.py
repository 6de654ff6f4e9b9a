"""A handler gives its job the key under which the other system will answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.exceptions import DuplicateJobKeyError, InvalidJobError
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

Charge = Callable[..., JobTypeSpec]


@pytest.fixture
def charge(declare: Declare) -> Charge:
    """A type whose handler does what is given, and then waits."""

    def charge(*steps: Callable[[Job], Any], result: Any = hipq.WAIT, **options: Any) -> Any:
        def handler(job: Job) -> Any:
            for step in steps:
                step(job)
            return result

        return declare("charge", **options)(handler)

    return charge


def set_bank_key(job: Job) -> None:
    job.set_key("bank-77")


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


@pytest.mark.conformance
def test_an_answer_finds_the_job_by_the_key_that_its_handler_set(charge: Charge) -> None:
    job = charge(set_bank_key).enqueue()
    run_due_jobs()

    answer = hipq.complete("charge", "bank-77", "paid")

    assert (answer.status, answer.job) == ("accepted", job)
    assert (row(job).outcome, row(job).result) == ("succeeded", "paid")


@pytest.mark.conformance
def test_an_answer_that_came_before_the_key_settles_the_job_at_once(charge: Charge) -> None:
    """H100: the answer for that key is already in the inbox."""
    seen: list[str] = []
    early = hipq.complete("charge", "bank-77", "paid")
    job = charge(set_bank_key, lambda job: seen.append(row(job).state)).enqueue()

    run_due_jobs()

    early.refresh_from_db()
    assert seen == ["final"]
    assert (row(job).outcome, row(job).result) == ("succeeded", "paid")
    assert (early.status, early.job, early.attempt) == ("accepted", job, 1)


UNIQUE = (
    "job type 'charge' has unique='live': the key of a job keeps others with its arguments away. "
    "Let the other system answer by callback_url(job), or declare unique='kept'."
)


def test_the_key_that_keeps_others_away_is_not_given_away(charge: Charge) -> None:
    declared = charge(set_bank_key, unique="live", retry=hipq.Never())
    job = declared.enqueue({"order": 42})

    run_due_jobs(raise_errors=False)

    assert (row(job).error, row(job).job_key) == (
        f"InvalidJobError: set_key: {UNIQUE}",
        job.job_key,
    )


def test_async_handlers_set_keys_too(declare: Declare) -> None:
    @declare("charge")
    async def charge(job: Job) -> Any:
        await job.aset_key("bank-77")
        return hipq.WAIT

    job = charge.enqueue()

    run_due_jobs()

    assert (row(job).state, row(job).job_key) == ("running", "bank-77")


# What is refused


@pytest.mark.conformance
def test_a_key_that_a_live_job_has_is_refused_and_changes_nothing(charge: Charge) -> None:
    charge().enqueue(job_key="order-42")
    job = HandWorker().run_pass()[0]
    holder = hipq.enqueue("charge", job_key="bank-77")

    with pytest.raises(DuplicateJobKeyError, match=f"job {holder.pk} is initial") as caught:
        job.set_key("bank-77")

    assert caught.value.job == holder
    assert (job.job_key, row(job).job_key) == ("order-42", "order-42")  # the connection is usable


@pytest.mark.parametrize("key", [None, "NONE", "a\nb"])
def test_what_is_no_key_is_refused(charge: Charge, key: Any) -> None:
    job = charge().enqueue(job_key="order-42")
    run_due_jobs()

    with pytest.raises(InvalidJobError, match="key"):
        row(job).set_key(key)

    assert row(job).job_key == "order-42"


def test_the_key_of_a_waiting_job_is_not_set(charge: Charge) -> None:
    job = charge().enqueue(job_key="order-42")

    with pytest.raises(
        InvalidJobError, match=r"is initial in attempt 0, .*; only the key of a running"
    ):
        job.set_key("bank-77")

    assert row(job).job_key == "order-42"


@pytest.mark.conformance
def test_an_attempt_that_somebody_else_took_over_sets_no_key(charge: Charge) -> None:
    charge(retry=hipq.Fixed(seconds=0)).enqueue(job_key="order-42")
    stale = HandWorker().run_pass()[0]
    hipq.fail("charge", "order-42", "busy")
    run_due_jobs()

    with pytest.raises(InvalidJobError, match="in attempt 2, and this is attempt 1"):
        stale.set_key("bank-77")

    assert row(stale).job_key == "order-42"


def test_an_answer_that_was_quicker_than_the_key_is_no_error(charge: Charge) -> None:
    """The partner called the callback URL before it told its id."""
    charge().enqueue(job_key="order-42")
    job = HandWorker().run_pass()[0]
    hipq.complete("charge", "order-42", "paid")

    assert job.set_key("bank-77") is False

    assert (row(job).result, row(job).job_key) == ("paid", "order-42")
