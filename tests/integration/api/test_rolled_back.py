"""What is left of a transaction that was rolled back means no other job, although that has its id.

SQLite gives ids of rows that were rolled back to others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from django.db import connection, transaction
from django.test import Client
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.exceptions import StaleAttemptError
from hipq_django.models import Job
from tests.integration.webhooks import everything
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

SITE = "https://shop.example"


class Pair(NamedTuple):
    """A job that was rolled back, and one that has its id."""

    lost: Job
    stranger: Job


def enqueued(job_type: str, **options: Any) -> Pair:
    with transaction.atomic():
        lost = hipq.enqueue(job_type, **options)
        transaction.set_rollback(True)
    stranger = hipq.enqueue(job_type, **options)
    if connection.vendor == "sqlite":
        assert stranger.pk == lost.pk
    lost.pk = stranger.pk  # as it would be on SQLite
    return Pair(lost, stranger)


VERBS: dict[str, tuple[Any, ...]] = {
    "cancel": (),
    "run_now": (),
    "reschedule": (datetime(2030, 5, 1, tzinfo=UTC),),
    "reprioritize": (7,),
    "requeue": (),
    "explain": (),
    "complete": (7,),
    "fail": ("declined",),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_that_the_job_does_not_exist(verb: str) -> None:
    pair = enqueued("ask")
    before = everything()

    with pytest.raises(hipq.InvalidJobError, match=r"or its transaction was rolled back\.$"):
        getattr(hipq, verb)(pair.lost, *VERBS[verb])

    assert everything() == before
    getattr(hipq, "explain" if verb == "requeue" else verb)(pair.stranger, *VERBS[verb])


@pytest.mark.parametrize(
    "report",
    [
        lambda job: hipq.progress(job, 40),
        lambda job: hipq.extend(job, 60),
        lambda job: job.report(40),
        lambda job: job.extend(60),
    ],
    ids=["progress", "extend", "job.report", "job.extend"],
)
def test_a_report_is_about_no_running_job(report: Callable[[Job], Any]) -> None:
    pair = enqueued("ask")
    run_due_jobs()
    pair.stranger.refresh_from_db()
    pair.lost.attempt = pair.stranger.attempt
    before = everything()

    assert not report(pair.lost)

    assert everything() == before
    assert report(pair.stranger)


def test_its_attempt_sets_no_key_and_takes_no_step() -> None:
    pair = enqueued("ask")
    run_due_jobs()
    pair.stranger.refresh_from_db()
    pair.lost.attempt = pair.stranger.attempt

    with pytest.raises(hipq.InvalidJobError, match="does not exist"):
        pair.lost.set_key("order-7")
    with pytest.raises(StaleAttemptError, match="does not exist any more"):
        pair.lost.step("charge", lambda: 1)
    pair.stranger.set_key("order-7")


def test_no_job_follows_it() -> None:
    pair = enqueued("echo")

    with pytest.raises(hipq.InvalidJobError, match="it was pruned or rolled back"):
        hipq.enqueue("echo", after=[pair.lost])
    hipq.enqueue("echo", after=[pair.stranger, pair.stranger.pk])


def test_its_callback_url_answers_no_other_job(settings: Settings) -> None:
    settings.HIPQ = {"default": {"CALLBACK_BASE_URL": SITE}}
    pair = enqueued("ask", job_key="order-1")
    run_due_jobs()
    pair.stranger.refresh_from_db()
    pair.lost.attempt = pair.stranger.attempt
    before = list(Job.objects.values())

    def post(job: Job, body: Any) -> int:
        path = hipq.callback_url(job).removeprefix(SITE)
        return Client().post(path, json.dumps(body), content_type="application/json").status_code

    told = [post(pair.lost, body) for body in BODIES]

    assert told == [409, 409, 410, 410]
    assert list(Job.objects.values()) == before
    assert [post(pair.stranger, body) for body in BODIES] == [200, 200, 200, 410]


BODIES: list[Any] = [
    {"progress": {"percent": 40}},
    {"extend": 60},
    {"response": {"paid": True}},
    {"error": "declined"},
]
