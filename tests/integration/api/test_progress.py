"""The other system says how far it is, and that it needs more time."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

TIMEOUT = 600


def asked(name: str = "ask", **options: Any) -> Job:
    """Return a job that waits for its answer."""
    job = hipq.enqueue(name, job_key="k", timeout=TIMEOUT, **options)
    run_due_jobs()
    return row(job)


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def now() -> Any:
    return clock.now("default")


# Progress


def test_a_new_attempt_begins_at_nothing(declare: Declare) -> None:
    declare("charge", retry=hipq.Fixed(seconds=0))(lambda job: hipq.WAIT)
    job = asked("charge")
    hipq.progress("charge", "k", 40, "page 4 of 10")
    hipq.extend("charge", "k", 60)
    hipq.fail("charge", "k", "busy")

    run_due_jobs()

    fresh = row(job)
    assert (fresh.attempt, fresh.progress, fresh.progress_message) == (2, 0, "NONE")
    assert fresh.extended_seconds == 0


def refusals(caplog: pytest.LogCaptureFixture, verb: str) -> list[tuple[Any, ...]]:
    """Return what the refusals of a verb are about."""
    names = ("job_id", "job_type", "job_key", "queue", "attempt")
    found = [r for r in caplog.records if getattr(r, "event", "") == f"{verb}_refused"]
    return [tuple(getattr(record, name, None) for name in names) for record in found]


def test_a_long_message_is_cut() -> None:
    job = asked()

    hipq.progress("ask", "k", 40, "x" * 100_000 + "\0")

    assert row(job).progress_message == "x" * 500 + "… (100001 characters)"


# More time


def test_a_job_with_more_time_times_out_later(frozen_time: time_machine.Traveller) -> None:
    job = asked()
    hipq.extend("ask", "k", 60)

    frozen_time.shift(TIMEOUT + 59)
    run_due_jobs()
    assert row(job).state == "running"
    frozen_time.shift(2)
    run_due_jobs()

    assert row(job).outcome == "timed_out"
    assert "got no answer within 660 s" in row(job).error
    attempt = row(job).attempts.get()
    assert attempt.start_time == job.start_time


def test_by_default_an_attempt_gets_ten_times_its_timeout_at_most() -> None:
    job = asked()

    hipq.extend("ask", "k", 5 * TIMEOUT)
    hipq.extend("ask", "k", 5 * TIMEOUT)

    last = job.start_time + timedelta(seconds=10 * TIMEOUT)
    assert row(job).deadline == last
    assert hipq.extend("ask", "k", 1) == last


@pytest.mark.parametrize(("timeout", "most"), [(60, 90), (TIMEOUT, TIMEOUT)])
def test_a_job_type_sets_the_most_that_an_attempt_gets(
    declare: Declare, timeout: int, most: int
) -> None:
    """A job whose own timeout is above the most keeps it."""
    declare("charge", max_timeout=90, timeout=60)(lambda job: hipq.WAIT)
    job = hipq.enqueue("charge", timeout=timeout)
    run_due_jobs()

    assert hipq.extend(job, 3600) == row(job).start_time + timedelta(seconds=most)


def test_the_deadline_of_a_response_handler_counts_anew(declare: Declare) -> None:
    """What was added for the other system is not added to the response handler."""
    declared = declare("charge")(lambda job: hipq.WAIT)
    declared.on_response(lambda job, response: response)
    job = asked("charge")
    hipq.extend("charge", "k", 60)
    hipq.complete("charge", "k", "paid")

    HandWorker().run_pass()

    assert (row(job).extended_seconds, row(job).worker is None) == (0, False)
    assert row(job).deadline - now() <= timedelta(seconds=TIMEOUT)


# By the callback URL


@pytest.fixture
def url(settings: Settings, declare: Declare) -> str:
    """The callback URL of the first attempt of a job that waits."""
    settings.HIPQ = {"default": {"CALLBACK_BASE_URL": "https://shop.example"}}
    urls: list[str] = []

    @declare("charge", retry=hipq.Fixed(seconds=0))
    def charge(job: Job) -> Any:
        urls.append(hipq.callback_url(job))
        return hipq.WAIT

    charge.enqueue(timeout=TIMEOUT)
    run_due_jobs()
    return urls[0].removeprefix("https://shop.example")


def post(url: str, body: Any) -> tuple[int, Any]:
    response = Client().post(url, json.dumps(body), content_type="application/json")
    return response.status_code, response.json()


def test_progress_comes_by_the_callback_url(url: str) -> None:
    body = {"progress": {"percent": 40, "message": "page 4 of 10"}}

    assert post(url, body) == (200, {"status": "stored"})

    job = Job.objects.get()
    assert (job.progress, job.progress_message) == (40, "page 4 of 10")


def test_more_time_comes_by_the_callback_url(url: str) -> None:
    before = Job.objects.get()

    status, told = post(url, {"extend": 60})

    deadline = before.deadline + timedelta(seconds=60)
    assert (status, told) == (200, {"status": "stored", "deadline": deadline.isoformat()})
    assert Job.objects.get().deadline == deadline


@pytest.mark.parametrize("body", [{"progress": {"percent": 40}}, {"extend": 60}])
def test_an_attempt_that_is_over_takes_no_progress(
    url: str, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    post(url, {"error": "busy"})
    run_due_jobs()
    before = Job.objects.get()

    status, told = post(url, body)

    job = Job.objects.get()
    assert (status, told["error"]) == (409, "this attempt is not running; nothing was changed.")
    assert (before.attempt, job.progress, job.deadline) == (2, 0, before.deadline)
    [about] = refusals(caplog, next(iter(body)))
    assert about == (job.pk, job.job_type.name, job.job_key, job.queue.name, 1)


def test_other_bodies_are_refused_with_nothing_changed(url: str) -> None:
    before = row(Job.objects.get()).__dict__ | {"_state": None}

    bodies: list[Any] = [
        {"progress": {"percent": 101}},
        {"progress": {"percent": 40, "message": 7}},
        {"extend": -1},
        {"extend": "60"},
        {"extend": 60, "response": "paid"},
        {"progres": {"percent": 40}},
    ]
    for body in bodies:
        status, told = post(url, body)
        assert (status, bool(told["error"])) == (400, True), body

    assert row(Job.objects.get()).__dict__ | {"_state": None} == before
