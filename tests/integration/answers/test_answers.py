"""Answers to running jobs: the first one wins, the others do no harm."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.models import Answer, Job
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def asked(name: str = "ask", **options: Any) -> Job:
    job = hipq.enqueue(name, job_key="k", **options)
    run_due_jobs()
    job.refresh_from_db()
    return job


@pytest.mark.parametrize("response", [{"paid": True}, None, "ok", 0, []])
def test_the_response_becomes_the_result_at_once(response: Any) -> None:
    job = asked()

    answer = hipq.complete("ask", "k", response=response)

    job.refresh_from_db()
    assert (job.state, job.outcome, job.error) == ("final", "succeeded", "NONE")
    assert job.result == response
    assert (answer.status, answer.job, answer.payload) == ("accepted", job, response)
    assert (answer.attempt, answer.message_id) == (1, "NONE")


# Errors


def test_an_error_may_be_json() -> None:
    job = asked()

    hipq.fail("ask", "k", error={"code": 51, "text": "no funds"})
    run_due_jobs()

    job.refresh_from_db()
    assert job.error == {"code": 51, "text": "no funds"}
    assert job.attempts.get().error == {"code": 51, "text": "no funds"}


def test_an_id_is_that_of_one_type_and_instance() -> None:
    hipq.complete("ask", "k", message_id="m-1")
    hipq.complete("echo", "k", message_id="m-1")

    assert Answer.objects.filter(message_id="m-1").count() == 2
