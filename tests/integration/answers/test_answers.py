"""Answers to running jobs: the first one wins, the others do no harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import transaction
from django.test import Client, RequestFactory

import hipq_django as hipq
from hipq_django.engines.sql import SqlEngine
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.models import Answer, Attempt, Job
from tests.declaring import Declare, noting
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def asked(name: str = "ask", **options: Any) -> Job:
    job = hipq.enqueue(name, job_key="k", **options)
    run_due_jobs()
    job.refresh_from_db()
    return job


@pytest.fixture
def patient(declare: Declare) -> JobTypeSpec:
    """A type that waits, and tries again in a minute after an error."""
    return declare("patient", retry=hipq.Fixed(seconds=60, max_attempts=9))(lambda job: hipq.WAIT)


@pytest.mark.parametrize("response", [{"paid": True}, None, "ok", 0, []])
def test_the_response_becomes_the_result_at_once(response: Any) -> None:
    job = asked()

    answer = hipq.complete("ask", "k", response=response)

    job.refresh_from_db()
    assert (job.state, job.outcome, job.error) == ("final", "succeeded", "NONE")
    assert job.result == response
    assert (answer.status, answer.job, answer.payload) == ("accepted", job, response)
    assert (answer.attempt, answer.message_id) == (1, "NONE")


def test_an_answer_of_a_rolled_back_transaction_never_was() -> None:
    job = asked()

    with transaction.atomic():
        hipq.complete("ask", "k", response="ok")
        transaction.set_rollback(True)

    job.refresh_from_db()
    assert (job.state, Answer.objects.count()) == ("running", 0)


def test_the_answer_is_for_the_job_type_that_it_names() -> None:
    hipq.enqueue("echo", job_key="k", scheduled_run_time=None)
    job = asked()

    hipq.complete("ask", "k", response="ok")

    job.refresh_from_db()
    assert job.outcome == "succeeded"


# Errors


def test_an_error_without_a_retry_handler_is_the_end() -> None:
    job = asked()

    answer = hipq.fail("ask", "k", error="declined")
    run_due_jobs()

    job.refresh_from_db()
    assert answer.status == "accepted"
    assert (job.state, job.outcome, job.error) == ("final", "failed", "declined")
    assert job.attempts.get().kind == Attempt.Kind.ANSWERED


def test_an_error_may_be_json() -> None:
    job = asked()

    hipq.fail("ask", "k", error={"code": 51, "text": "no funds"})
    run_due_jobs()

    job.refresh_from_db()
    assert job.error == {"code": 51, "text": "no funds"}
    assert job.attempts.get().error == {"code": 51, "text": "no funds"}


def test_the_retry_handler_decides_about_an_error_in_the_next_batch(
    patient: JobTypeSpec,
) -> None:
    seen: list[Any] = []
    patient.on_error(noting(seen, "error", hipq.RetryIn(60)))
    job = asked("patient")

    hipq.fail("patient", "k", error="declined")
    job.refresh_from_db()
    at_once = (job.state, list(seen))
    run_due_jobs()
    job.refresh_from_db()

    assert at_once == ("error", [])
    assert (job.state, seen) == ("retry", ["declined"])


# Twice


@pytest.mark.parametrize("answer", [hipq.complete, hipq.fail])
def test_the_same_answer_again_changes_nothing(answer: Callable[..., Answer]) -> None:
    """T17."""
    job = asked()
    answer("ask", "k", "same")
    run_due_jobs()
    before = Job.objects.filter(pk=job.pk).values().get()

    second = answer("ask", "k", "same")
    run_due_jobs()

    assert (second.status, second.job) == ("duplicate", job)
    assert Job.objects.filter(pk=job.pk).values().get() == before
    assert Answer.objects.count() == 2


def test_another_answer_to_a_final_job_is_late() -> None:
    """T17: the first one wins."""
    job = asked()
    hipq.complete("ask", "k", response="first")

    second = hipq.complete("ask", "k", response="second")
    third = hipq.fail("ask", "k", error="third")

    job.refresh_from_db()
    assert (second.status, third.status) == ("late", "late")
    assert job.result == "first"


def test_a_message_is_known_by_its_id() -> None:
    """T17: whatever it says the second time."""
    asked()
    first = hipq.complete("ask", "k", response="one", message_id="m-1")

    again = hipq.complete("ask", "k", response="two", message_id="m-1")

    assert again == first
    assert again.payload == "one"
    assert Answer.objects.count() == 1


def test_an_id_is_that_of_one_type_and_instance() -> None:
    hipq.complete("ask", "k", message_id="m-1")
    hipq.complete("echo", "k", message_id="m-1")

    assert Answer.objects.filter(message_id="m-1").count() == 2


def test_a_repeated_error_is_not_counted_twice(patient: JobTypeSpec, frozen_time: Any) -> None:
    """T17."""
    job = asked("patient")

    statuses = [hipq.fail("patient", "k", error="declined").status for _ in range(3)]
    run_due_jobs()
    statuses.append(hipq.fail("patient", "k", error="declined").status)
    run_due_jobs()

    job.refresh_from_db()
    assert statuses == ["accepted", "duplicate", "duplicate", "duplicate"]
    assert (job.state, job.attempts.count()) == ("retry", 1)


def test_a_second_error_of_one_attempt_is_late(patient: JobTypeSpec) -> None:
    """T17."""
    job = asked("patient")
    hipq.fail("patient", "k", error="declined")

    in_error = hipq.fail("patient", "k", error="also broken")
    run_due_jobs()
    in_retry = hipq.fail("patient", "k", error="really broken")

    job.refresh_from_db()
    assert (in_error.status, in_retry.status) == ("late", "late")
    assert (job.error, job.attempts.count()) == ("declined", 1)


def test_the_same_error_of_the_next_attempt_counts(patient: JobTypeSpec, frozen_time: Any) -> None:
    job = asked("patient")
    hipq.fail("patient", "k", error="declined")
    run_due_jobs()
    frozen_time.shift(60)
    run_due_jobs()

    answer = hipq.fail("patient", "k", error="declined")
    run_due_jobs()

    job.refresh_from_db()
    assert (answer.status, answer.attempt) == ("accepted", 2)
    assert job.attempts.count() == 2


# While the handler is still running


def test_an_answer_while_the_handler_runs_settles_the_job(declare: Declare) -> None:
    """T16."""

    @declare("hasty")
    def hasty(job: Job) -> Any:
        hipq.complete("hasty", job.job_key, response="that was quick")
        return hipq.WAIT

    job = asked("hasty")

    assert (job.outcome, job.result) == ("succeeded", "that was quick")


@pytest.mark.parametrize("after", ["returns", "raises"])
def test_what_the_handler_does_after_its_answer_is_dropped(after: str, declare: Declare) -> None:
    """T16."""

    @declare("hasty")
    def hasty(job: Job) -> Any:
        hipq.complete("hasty", job.job_key, response="the answer")
        if after == "raises":
            raise OSError("connection reset while reading 202")
        return "the return value"

    job = asked("hasty")

    assert (job.outcome, job.result, job.attempts.count()) == ("succeeded", "the answer", 0)


def test_an_error_while_the_handler_runs_fails_the_attempt(declare: Declare) -> None:
    """T16."""

    @declare("hasty", retry=hipq.Fixed(seconds=60))
    def hasty(job: Job) -> Any:
        hipq.fail("hasty", job.job_key, error="declined")
        return hipq.WAIT

    job = asked("hasty")

    assert (job.state, job.error, job.attempts.count()) == ("retry", "declined", 1)


def test_a_claimed_job_is_settled_before_its_handler_starts() -> None:
    """T16."""
    job = hipq.enqueue("ask", job_key="k")
    worker = HandWorker()
    worker.run_pass()

    hipq.complete("ask", "k", response="early bird")
    worker.execute()
    worker.save()

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "early bird")


# In error and in retry


def test_a_response_in_error_settles_the_job(patient: JobTypeSpec) -> None:
    job = asked("patient")
    hipq.fail("patient", "k", error="declined")

    answer = hipq.complete("patient", "k", response="after all")
    run_due_jobs()

    job.refresh_from_db()
    assert answer.status == "accepted"
    assert (job.outcome, job.result, job.error) == ("succeeded", "after all", "NONE")


def test_a_response_while_the_retry_handler_decides_settles_the_job(
    patient: JobTypeSpec,
) -> None:
    job = asked("patient")
    hipq.fail("patient", "k", error="declined")
    worker = HandWorker()
    worker.run_pass()

    hipq.complete("patient", "k", response="after all")
    worker.execute()
    worker.save()

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "after all")


def test_a_response_while_the_job_waits_for_its_retry_saves_the_second_request(
    patient: JobTypeSpec, frozen_time: Any
) -> None:
    requests: list[int] = []
    patient.handler = noting(requests, "attempt", hipq.WAIT)
    job = asked("patient")
    hipq.fail("patient", "k", error="declined")
    run_due_jobs()

    hipq.complete("patient", "k", response="after all")
    frozen_time.shift(600)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.result, requests) == ("succeeded", "after all", [1])
    assert job.attempts.count() == 1


def test_an_error_while_the_job_waits_for_its_retry_replaces_what_was_guessed(
    declare: Declare,
) -> None:
    declare("shaky", retry=hipq.Fixed(seconds=60, max_attempts=2))(lambda job: 1 / 0)
    job = asked("shaky")

    answer = hipq.fail("shaky", "k", error="no such card")
    run_due_jobs()

    job.refresh_from_db()
    assert answer.status == "accepted"
    assert (job.state, job.error) == ("retry", "no such card")
    assert [a.error for a in job.attempts.all()] == ["no such card"]


def test_a_callback_whose_job_got_another_key_meanwhile_is_stored(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """The handler has set it while the callback waited for the database."""
    job = asked()
    read = SqlEngine.type_and_key_of

    def read_before(*args: Any) -> Any:
        found = read(*args)
        Job.objects.filter(pk=job.pk).update(job_key="bank-77")
        return found

    monkeypatch.setattr(SqlEngine, "type_and_key_of", read_before)
    request = RequestFactory().get("/")
    url = urlsplit(hipq.callback_url(job, request=request)).path
    reply = client.post(url, {"response": 1}, "application/json")

    assert (reply.status_code, reply.json()) == (200, {"status": "accepted"})
    job.refresh_from_db()
    assert (job.job_key, job.result) == ("bank-77", 1)
