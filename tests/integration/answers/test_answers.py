"""Answers to running jobs: the first one wins, the others do no harm."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import transaction
from django.test import Client, RequestFactory

import hipq_django as hipq
from hipq_django.engines.sql import SqlEngine
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.models import Answer, Job
from tests.declaring import Declare, noting
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


def test_an_id_is_that_of_one_type_and_instance() -> None:
    hipq.complete("ask", "k", message_id="m-1")
    hipq.complete("echo", "k", message_id="m-1")

    assert Answer.objects.filter(message_id="m-1").count() == 2


# While the handler is still running


# In error and in retry


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
