"""The admin's lists of jobs and answers: what they show, find and filter."""

from __future__ import annotations

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.urls import reverse

from hipq_django.database import clock
from hipq_django.models import Answer, Job
from tests.admin_pages import html, list_url
from tests.copying import analyze, copy
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, QueueFactory, WorkerFactory
from tests.plans import assert_good, watched_plans

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def found(client: Client, model: type[Any] = Job, /, **query: Any) -> list[Any]:
    """The rows that a list shows, in its order."""
    response = client.get(list_url(model), query)
    assert response.status_code == 200, response
    return list(response.context["cl"].result_list)


def job_in(state: str, **values: Any) -> Job:
    job: Job = JobFactory.create(state=state, **values)
    return job


@pytest.fixture
def jobs() -> dict[str, Job]:
    """One job of each kind."""
    later = clock.now("default") + timedelta(days=1)
    return {
        "due": job_in("initial"),
        "future": job_in("initial", scheduled_run_time=later),
        "retry": job_in("retry", error="HTTPError: 503\nfor url https://bank.example"),
        "executing": job_in("running", worker=WorkerFactory.create(name="shop-1:4711")),
        "awaiting": job_in("running"),
        "error": job_in("error", error={"code": "declined"}),
        "succeeded": job_in("final"),
        "failed": job_in("final", outcome="failed", error="KeyError: 'region'"),
    }


def test_jobs_are_filtered_by_where_they_stand_the_longest_living_first(
    admin_client: Client, jobs: dict[str, Job]
) -> None:
    expected: list[tuple[dict[str, str], list[str]]] = [
        ({"state": "due"}, ["due", "retry"]),
        ({"state": "waiting"}, ["due", "future", "retry"]),
        ({"state": "initial"}, ["due", "future"]),
        ({"state": "retry"}, ["retry"]),
        ({"state": "running"}, ["executing", "awaiting"]),
        ({"state": "awaiting"}, ["awaiting"]),
        ({"state": "error"}, ["error"]),
        ({"state": "final"}, ["failed", "succeeded"]),
        ({"outcome": "failed"}, ["failed"]),
        ({"outcome": "timed_out"}, []),
    ]
    for query, names in expected:
        assert found(admin_client, **query) == [jobs[name] for name in names], query


def test_what_ended_in_the_last_hour_is_listed_the_last_first(admin_client: Client) -> None:
    now = clock.now("default")
    failed = {"outcome": "failed", "error": "boom"}
    late, later, succeeded, _before = (
        job_in("final", update_time=now - timedelta(minutes=minutes), **outcome)
        for minutes, outcome in ((10, failed), (2, failed), (5, {}), (61, failed))
    )
    job_in("running")

    assert found(admin_client, ended="hour") == [later, succeeded, late]
    assert found(admin_client, ended="hour", outcome="failed") == [later, late]
    for query in ({"type": late.job_type_id}, {"queue": late.queue_id}):
        assert late in found(admin_client, ended="hour", outcome="failed", **query)
    assert found(admin_client, ended="month") == []


def test_an_error_is_listed_as_it_reads(admin_client: Client) -> None:
    for sensitive in ([], ["card"]):
        kind = JobTypeFactory.create(sensitive=sensitive)
        job_in("retry", job_type=kind, error='ValueError: "geprüft" in C:\\new\nand more')
        job_in("error", job_type=kind, error={"code": "declined"})

    page = unescape(html(admin_client, list_url(Job)))

    assert page.count('after ValueError: "geprüft" in C:\\new<') == 2
    assert page.count('{"code": "declined"}<') == 2


def test_each_row_says_what_is_up_with_the_job(
    frozen_time: time_machine.Traveller, admin_client: Client, jobs: dict[str, Job]
) -> None:
    frozen_time.shift(0.5)
    page = html(admin_client, list_url(Job))

    for text in (
        "due for 0 s",
        "due in 23 h 59 min",
        "due for 0 s, after HTTPError: 503<",
        "worker shop-1:4711",
        "times out in 23 h 59 min",
        "{&quot;code&quot;: &quot;declined&quot;}",
        "KeyError: &#x27;region&#x27;",
        "final: succeeded",
        "running: waits for answer",
    ):
        assert text in page


# Filters and search


@pytest.fixture
def keyed() -> dict[str, Job]:
    """Jobs with a key in each state, one with a longer key, and one whose key is an id."""
    bank = JobTypeFactory.create(name="charge", queue=QueueFactory.create(name="bank"))
    found = {
        state: job_in(state, job_key="order-42")
        for state in ("initial", "running", "error", "retry", "final")
    }
    found["longer"] = job_in("initial", job_key="order-421")
    found["digits"] = job_in("initial", job_key=str(found["final"].pk), job_type=bank)
    return found


STATES = ("final", "retry", "error", "running", "initial")


def test_jobs_are_found_by_queue_type_key_and_id(
    admin_client: Client, keyed: dict[str, Job]
) -> None:
    of_bank, pk = keyed["digits"], keyed["final"].pk
    expected: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({}, ("digits", "longer", *STATES)),
        ({"queue": of_bank.queue_id}, ("digits",)),
        ({"type": of_bank.job_type_id}, ("digits",)),
        ({"q": " order-42 "}, STATES),
        ({"q": "order-4"}, ()),
        ({"q": str(pk)}, ("digits", "final")),
        ({"q": str(pk), "state": "final"}, ("final",)),
    ]
    nothing = ("NONE", "0", "-1", "9" * 19, "9" * 5_000, "²", "'; --", "%", "1 OR 1=1")
    expected += [({name: term}, ()) for term in nothing for name in ("q", "queue")]

    for query, names in expected:
        assert found(admin_client, **query) == [keyed[name] for name in names], query


# Answers


def test_an_answer_of_a_job_is_found_by_its_key(admin_client: Client) -> None:
    """Also one that came under another key, and was matched by hand."""
    job, other = job_in("final", job_key="k-1"), job_in("running", job_key="k-2")
    accepted = AnswerFactory.create(job=job, status="accepted", job_key="k-1")
    matched = AnswerFactory.create(job=job, status="discarded", job_key="k_1")
    elsewhere = AnswerFactory.create(job=other, status="late", job_key="k-1")
    AnswerFactory.create(job=other, status="accepted", job_key="k-2")

    assert found(admin_client, Answer, q="k-1") == [elsewhere, matched, accepted]
    assert found(admin_client, Answer, q="k-1", status="accepted") == [accepted]


def test_few_answers_are_not_looked_for_among_all_that_were_accepted(admin_client: Client) -> None:
    wanted = job_in("running", job_key="k-1", attempt=1)
    AnswerFactory.create(job=wanted, status="accepted", job_key="k-1", kind="error")
    AnswerFactory.create(status="unmatched", kind="malformed", problem="no JSON", job_key="k-1")
    accepted = AnswerFactory.create(job=job_in("running"), status="accepted", job_key="k-2")
    copy(accepted, 20_000, part="'part ' || n")
    analyze()

    for query in ({"q": "k-1"}, {"kind": "malformed"}, {"kind": "error"}):
        with watched_plans() as plans:
            page = html(admin_client, list_url(Answer), **query)

        assert "k-1" in page
        assert_good([plan for plan in plans if 'FROM "hipq_answer"' in plan.sql])


def test_a_malformed_message_is_found_by_its_kind_and_shown_with_its_problem(
    admin_client: Client,
) -> None:
    AnswerFactory.create(status="early")
    malformed = AnswerFactory.create(
        kind="malformed",
        status="unmatched",
        problem="KeyError: 'order'",
        payload={"source": "post", "body": "{}"},
    )

    assert found(admin_client, Answer, kind="malformed") == [malformed]
    page = html(admin_client, reverse("admin:hipq_answer_change", args=[malformed.pk]))
    assert "KeyError: &#x27;order&#x27;" in page
