"""Run now, cancel and requeue in the admin: from the list and from a job's page."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Job
from tests.admin_pages import (
    act,
    button_values,
    confirm,
    history,
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
    press,
)
from tests.declaring import Declare
from tests.factories import JobFactory
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

BOX = 'type="checkbox" name="{}"'


def job_in(state: str, **values: Any) -> Job:
    job: Job = JobFactory.create(state=state, **values)
    return job


# What they do


@pytest.mark.conformance
@pytest.mark.parametrize("state", ["initial", "running", "error", "retry"])
def test_cancel_ends_a_live_job(admin_client: Client, state: str) -> None:
    job = job_in(state)

    press(admin_client, "cancel", job)

    job.refresh_from_db()
    assert (job.state, job.outcome) == ("final", "cancelled")


@pytest.mark.conformance
@pytest.mark.parametrize("from_page", [True, False])
def test_requeue_makes_a_fresh_job_from_a_final_one(admin_client: Client, from_page: bool) -> None:
    job = job_in("final", outcome="failed", error="boom", job_data={"order": 42}, job_key="k")

    response = (press if from_page else act)(admin_client, "requeue", job)

    fresh = Job.objects.exclude(pk=job.pk).get()
    chain = [(page_url(fresh), 302)] if from_page else [(list_url(Job), 302)]
    assert response.redirect_chain == chain
    assert (fresh.state, fresh.job_data, fresh.job_key, fresh.origin) == (
        "initial", {"order": 42}, "k", job,
    )  # fmt: skip
    assert history(job) == [f"Requeued as job {fresh.pk}."]
    assert history(fresh) == [f"Requeued from job {job.pk}."]


@pytest.mark.parametrize("why", ["requeued before", "without what it follows"])
def test_a_requeue_that_is_not_like_the_first_run_has_to_be_confirmed(
    client: Client, broken_chain: list[Job], why: str
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed, job, _last = broken_chain
    text = "It would run without their results, unless they are requeued before it."
    if why == "requeued before":
        job, text = failed, f"the last time as job {hipq.requeue(failed).pk}."
    before = job.successors.count()

    asked = client.post(page_url(job, "requeue"))

    assert text in asked.content.decode()
    assert job.successors.count() == before
    act(client, "requeue", job, confirmed="1")
    assert job.successors.count() == before + 1


def test_a_chain_that_is_selected_in_the_list_is_a_chain_again(
    client: Client, broken_chain: list[Job]
) -> None:
    log_in(client, "view_job", "requeue_job")

    act(client, "requeue", *broken_chain, confirmed="1")

    fresh = list(Job.objects.live().order_by("pk"))
    assert [job.origin_id for job in fresh] == [job.pk for job in broken_chain]
    assert [job.hold_time is None for job in fresh] == [True, False, False]
    assert list(fresh[2].needs.values_list("needs_job", flat=True)) == [fresh[1].pk]


def test_the_list_says_what_a_job_was_requeued_as(admin_client: Client) -> None:
    job = job_in("final", outcome="failed", error="boom")
    again = [hipq.requeue(job) for _ in range(2)][-1]

    page = html(admin_client, list_url(Job), state="final")

    assert f'requeued as <a href="{page_url(again)}">job {again.pk}</a>, boom' in page


# Who may, and when


@pytest.mark.parametrize(
    ("state", "ahead", "offers"),
    [
        ("initial", 0, {"cancel"}), ("running", 0, {"cancel"}), ("error", 0, {"cancel"}),
        ("retry", 0, {"cancel"}), ("retry", 9, {"run_now", "cancel"}), ("final", 0, {"requeue"}),
    ],
)  # fmt: skip
def test_a_page_offers_what_suits_the_state(
    admin_client: Client, state: str, ahead: int, offers: set[str]
) -> None:
    job = job_in(state, scheduled_run_time=clock.now("default") + timedelta(days=ahead))

    assert set(re.findall(r'<form id="hipq-(\w+)"', html(admin_client, page_url(job)))) == offers


# A job that waits for others


@pytest.fixture
def held() -> Job:
    first = hipq.enqueue("ask", job_key="first")
    return hipq.enqueue("echo", after=[first])


def is_held(job: Job) -> bool:
    return Job.objects.get(pk=job.pk).hold_time is not None


def test_to_run_a_held_job_now_has_to_be_confirmed_on_its_page(client: Client, held: Job) -> None:
    log_in(client, "view_job", "run_job")
    url = page_url(held, "run_now")

    assert "it does not follow them any more" in html(client, page_url(held))
    asked = client.post(url).content.decode()
    assert "it does not follow them any more" in asked
    assert is_held(held)
    assert history(held) == []

    response = client.post(url, {"confirmed": "1"}, follow=True)
    assert "its wait for other jobs dropped" in messages_of(response)[0]
    assert not is_held(held)
    assert history(held) == [
        "Set to run now, its time windows and its wait for other jobs dropped."
    ]


def test_a_held_job_is_listed_with_what_it_waits_for(admin_client: Client, held: Job) -> None:
    page = html(admin_client, list_url(Job))

    assert "waits for other jobs" in page
    assert "9000" not in page


# With what follows a job, and with what it has enqueued


@pytest.fixture
def broken_chain(declare: Declare) -> list[Job]:
    """A job that failed, and two that were cancelled because of it."""
    jobs = hipq.chain(*(hipq.NewJob(name) for name in ("boom", "echo", "echo")))
    run_due_jobs()
    return [Job.objects.get(pk=job.pk) for job in jobs]


@pytest.mark.conformance
@pytest.mark.parametrize("chosen", [True, False])
def test_a_job_is_requeued_with_what_it_took_down_where_that_is_chosen(
    client: Client, broken_chain: list[Job], chosen: bool
) -> None:
    log_in(client, "view_job", "requeue_job")
    failed, *cancelled = broken_chain
    url = page_url(failed, "requeue")

    assert BOX.format("dependents") in html(client, page_url(failed))
    assert BOX.format("dependents") in client.post(url).content.decode()
    assert history(failed) == []

    sent = {"confirmed": "1", **({"dependents": "1"} if chosen else {})}
    response = client.post(url, sent, follow=True)

    fresh = Job.objects.get(origin=failed)
    again = Job.objects.filter(origin__in=cancelled).order_by("pk")
    assert [job.hold_time is not None for job in again] == ([True, True] if chosen else [])
    said = "Requeued with its dependents" if chosen else "Requeued"
    assert messages_of(response) == [f"{said}: job {fresh.pk}."]
    assert history(failed) == [f"{said} as job {fresh.pk}."]
    assert history(fresh) == [f"{said} from job {failed.pk}."]


def test_a_job_that_has_nothing_to_requeue_with_it_is_requeued_at_once(client: Client) -> None:
    log_in(client, "view_job", "requeue_job")
    job, _ = hipq.chain(hipq.NewJob("echo"), hipq.NewJob("echo"))
    run_due_jobs()

    assert "dependents" not in html(client, page_url(job))
    client.post(page_url(job, "requeue"))
    assert len(history(job)) == 1


@pytest.mark.conformance
def test_what_a_page_did_not_warn_of_is_not_done(client: Client, broken_chain: list[Job]) -> None:
    log_in(client, "view_job", "requeue_job")
    failed = broken_chain[0]
    sent = button_values(client, "requeue", failed)
    assert sent["confirmed"] == "1"

    fresh = hipq.requeue(failed)
    said = messages_of(client.post(page_url(failed, "requeue"), sent, follow=True))

    assert f"the last time as job {fresh.pk}." in said[0]
    assert Job.objects.get(origin=failed) == fresh
    assert history(failed) == []


@pytest.fixture
def family(declare: Declare) -> list[Job]:
    """A job that waits for its answer, one that it has enqueued, and one that this has."""

    def ask(job: Job) -> object:
        if job.job_data:
            hipq.enqueue("spread", job.job_data - 1)
        return hipq.WAIT

    declare("spread")(ask)
    hipq.enqueue("spread", 2)
    run_due_jobs()
    return list(Job.objects.order_by("pk"))


@pytest.mark.conformance
@pytest.mark.parametrize("chosen", [True, False])
def test_a_job_is_cancelled_with_what_it_has_enqueued_where_that_is_chosen(
    client: Client, family: list[Job], chosen: bool
) -> None:
    log_in(client, "view_job", "cancel_job")
    job = family[0]

    assert BOX.format("descendants") in html(client, page_url(job))
    assert BOX.format("descendants") in client.post(page_url(job, "cancel")).content.decode()
    sent = {"descendants": "1"} if chosen else {}
    response = confirm(client, "cancel", job, **sent)

    assert Job.objects.live().count() == (0 if chosen else 2)
    said = "Cancelled with its descendants" if chosen else "Cancelled"
    assert messages_of(response) == [f"{said}: job {job.pk}."]
    began = ["Began to cancel."] if chosen else []
    assert history(job) == [*began, f"{said}."]


def test_what_a_job_that_has_ended_has_enqueued_is_cancelled(
    client: Client, family: list[Job]
) -> None:
    log_in(client, "view_job", "cancel_job")
    job = family[0]
    hipq.complete(job, 1)

    page = html(client, page_url(job))
    assert re.search(f"<input {BOX.format('descendants')}[^>]* checked", page)
    assert "The job has ended, and stays as it is." in page
    said = messages_of(confirm(client, "cancel", job))
    assert said == [
        f"cancel: job {job.pk} is final (succeeded), so there is nothing to cancel; "
        "to cancel what it has enqueued, cancel it with its descendants."
    ]
    confirm(client, "cancel", job, descendants="1")

    assert not Job.objects.live().exists()
    assert Job.objects.get(pk=job.pk).outcome == "succeeded"
    assert history(job) == ["Began to cancel.", "Cancelled with its descendants."]
    assert page_url(job, "cancel") not in html(client, page_url(job))  # nothing is left to cancel
