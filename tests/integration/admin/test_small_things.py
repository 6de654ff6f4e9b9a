"""What pages call themselves, offer and link to."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models import Answer, Job, JobType, Queue, Worker
from hipq_django.testing import run_due_jobs
from tests.admin_pages import html, list_url, messages_of, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, WorkerFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("model", "title"),
    [
        (Queue, "Queues"),
        (Job, "Jobs"),
        (JobType, "Job types"),
        (Worker, "Workers"),
        (Answer, "Answers"),
    ],
)
def test_a_list_says_what_it_lists(admin_client: Client, model: type, title: str) -> None:
    page = html(admin_client, list_url(model))

    assert f"<title>{title} |" in page
    assert f"<h1>{title}</h1>" in page


def test_a_page_says_which_row_it_shows(admin_client: Client) -> None:
    job = JobFactory.create(job_key="order-7")

    assert f"<h1>Job {job.pk} (order-7)</h1>" in html(admin_client, page_url(job))
    assert f"<h1>Queue {job.queue.name}</h1>" in html(admin_client, page_url(job.queue))
    assert f"<h1>Job type {job.job_type.name}</h1>" in html(admin_client, page_url(job.job_type))


def test_run_now_is_offered_where_it_changes_something(admin_client: Client) -> None:
    due = JobFactory.create()
    windows = JobFactory.create(time_windows=["22:00-23:00"])
    later = JobFactory.create(scheduled_run_time=timezone.now() + timedelta(hours=1))

    offered = [">Run now<" in html(admin_client, page_url(job)) for job in (due, windows, later)]

    assert offered == [False, True, True]
    chosen = {"action": "run_now", "_selected_action": [due.pk, later.pk]}
    said = messages_of(admin_client.post(list_url(Job), chosen, follow=True))
    assert said == [
        "Set to run now, its time windows dropped: 1 job.",
        f"job {due.pk} was left as it is: it is due already, and has no time windows.",
    ]


def test_a_job_that_waits_is_not_asked_why_it_does_not_run(
    admin_client: Client, declare: Declare
) -> None:
    declare("waits")(lambda job: hipq.WAIT)
    job = hipq.enqueue("waits")
    assert "Why it is not running" in html(admin_client, page_url(job))
    run_due_jobs()

    page = html(admin_client, page_url(job))

    assert "Why it is not running" not in page
    assert "What it waits for" in page


def test_the_attempt_that_succeeded_is_shown(admin_client: Client, declare: Declare) -> None:
    declare("fine")(lambda job: 1)
    job = hipq.enqueue("fine")
    run_due_jobs()

    page = html(admin_client, page_url(job))

    assert "<h2>Attempts</h2>" in page
    assert "<td>succeeded</td>" in page


def test_a_job_links_to_what_it_was_requeued_as(admin_client: Client, declare: Declare) -> None:
    declare("fine")(lambda job: 1)
    job = hipq.enqueue("fine")
    run_due_jobs()
    job.refresh_from_db()
    again = hipq.requeue(job)

    assert page_url(again) in html(admin_client, page_url(job))
    assert page_url(job) in html(admin_client, page_url(again))


def test_lists_say_how_jobs_ended_lately(admin_client: Client) -> None:
    WorkerFactory.create()
    kind = JobTypeFactory.create()
    for number in range(12):
        outcome = {"outcome": "failed", "error": "boom"} if number else {}
        JobFactory.create(job_type=kind, state="final", **outcome)

    for row, name in ((kind.queue, "queue"), (kind, "type")):
        for page in (html(admin_client, list_url(type(row))), html(admin_client, page_url(row))):
            assert "12 ended" in page
            assert f"?{name}={row.pk}&amp;outcome=failed" in page
            assert ">failing<" in page


def test_a_quiet_queue_is_not_called_failing(admin_client: Client) -> None:
    kind = JobTypeFactory.create()
    JobFactory.create(job_type=kind, state="final", outcome="failed", error="boom")
    AnswerFactory.create()

    assert ">failing<" not in html(admin_client, list_url(Queue))
