"""A job's page in the admin: what it shows, and editing a job that waits."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.models import Job, Queue
from tests.admin_pages import (
    form_values,
    history,
    html,
    list_url,
    messages_of,
    page_url,
    press,
    save,
)
from tests.declaring import Declare
from tests.factories import (
    AnswerFactory,
    AttemptFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    WorkerFactory,
)
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

TOMORROW = {"scheduled_run_time_0": "2030-05-01", "scheduled_run_time_1": "12:30:00"}
HOSTILE = "<script>alert(1)</script></pre><img src=x onerror=alert(2)>"


def waiting(**values: Any) -> Job:
    job: Job = JobFactory.create(**values)
    return job


def editable(client: Client, job: Job) -> set[str]:
    """The names of the values that the job's page lets a user edit."""
    names = {name.removesuffix("_0") for name in form_values(client, job)}
    return names & {field.name for field in Job._meta.get_fields()}


# What it shows


def test_the_page_says_why_a_job_is_not_running_and_what_to_press(admin_client: Client) -> None:
    WorkerFactory.create()
    queue = QueueFactory.create(name="bank", paused=True, throttle_limit=1)
    job_type = JobTypeFactory.create(name="ask", queue=queue)
    waiting(job_type=job_type, state="running")

    page = html(admin_client, page_url(waiting(job_type=job_type)))

    assert "Queue bank is paused." in page
    assert "Resume the queue." in page
    assert "The limit of queue bank is reached: 1 of 1 running" in page
    assert f'href="{page_url(queue)}">Open queue bank</a>' in page
    assert "Run now</button>" not in page


def test_the_page_shows_failed_attempts_and_answers(admin_client: Client) -> None:
    job = waiting(state="retry", attempt=2)
    AttemptFactory.create(job=job, attempt=1, error="HTTPError: 503", traceback="File jobs.py")
    AttemptFactory.create(job=job, attempt=2, kind="timed_out", error={"code": 7})
    AnswerFactory.create(job=job, status="late", payload={"receipt": 4711})

    page = html(admin_client, page_url(job))

    for text in ("HTTPError: 503", "File jobs.py", "timed out", "&quot;code&quot;: 7", "4711"):
        assert text in page
    assert "the job was final" in page


def test_a_job_that_gathers_others_is_not_to_be_requeued_for_an_answer(
    admin_client: Client, declare: Declare
) -> None:
    """That would enqueue all of them once more."""
    declare("film")(lambda job: job.gather([hipq.NewJob("ask")]))
    job, alone = hipq.enqueue("film"), hipq.enqueue("ask")
    run_due_jobs()

    assert "cancel and requeue" not in html(admin_client, page_url(job))
    assert "It waits until these have ended" in html(admin_client, page_url(job))
    assert "cancel and requeue" in html(admin_client, page_url(alone))


@pytest.mark.parametrize("state", ["retry", "final"])
def test_what_others_sent_is_escaped_everywhere(admin_client: Client, state: str) -> None:
    outcome = "failed" if state == "final" else "NONE"
    data: Any = {HOSTILE: [HOSTILE]}
    job = waiting(
        state=state, outcome=outcome, error=HOSTILE, job_data=data, result=data, job_key=HOSTILE
    )
    job.queue.throttler_problem = HOSTILE
    job.queue.save()
    AttemptFactory.create(job=job, error=HOSTILE, traceback=HOSTILE, worker=HOSTILE)
    answer = AnswerFactory.create(job=job, status="late", payload=data, job_key=HOSTILE)
    worker = WorkerFactory.create(name=HOSTILE, queues=[HOSTILE])
    rows = [job, answer, worker, job.queue, job.job_type]

    urls = [url for row in rows for url in (page_url(row), list_url(type(row)))]

    for page in [html(admin_client, url) for url in urls]:
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    said = press(admin_client, "requeue", job).content.decode()
    assert "<script>alert" not in said


def test_the_page_needs_no_inline_script_or_style(admin_client: Client) -> None:
    page = html(admin_client, page_url(waiting(state="retry")))

    assert "<script>" not in page
    assert "style=" not in page
    assert "hipq_django/admin.css" in page


# Which jobs may be edited


def test_nothing_of_another_job_may_be_edited(admin_client: Client) -> None:
    offered = {"scheduled_run_time", "priority", "throttle_factor"}
    assert editable(admin_client, waiting(state="retry")) == offered
    for state in ("running", "error", "final"):
        job = waiting(state=state)
        error = job.error

        response = save(admin_client, job, priority="1", state="initial", error="", job_type="1")

        assert editable(admin_client, job) == set()
        assert messages_of(response)[0].startswith(f"job {job.pk} was not changed: its state is")
        job.refresh_from_db()
        assert (job.priority, job.state, job.error) == (100, state, error)
        assert history(job) == []


# Editing


@pytest.mark.conformance
@pytest.mark.parametrize("order", ["time", "ageing"])
def test_an_edit_moves_the_job_to_its_new_place_in_the_queue(
    admin_client: Client, order: str
) -> None:
    queue: Queue = QueueFactory.create(order=order)
    job = waiting(job_type=JobTypeFactory.create(queue=queue))

    save(admin_client, job, priority="-7", throttle_factor="0.5", **TOMORROW)

    job.refresh_from_db()
    moment = datetime(2030, 5, 1, 12, 30, tzinfo=UTC)
    assert (job.scheduled_run_time, job.priority) == (moment, -7)
    assert job.throttle_factor == Decimal("0.5")
    assert job.rank == queue.ordering.rank(moment, -7)
    assert history(job) == [
        f"Changed scheduled run time from {job.create_time:%Y-%m-%d %H:%M:%S}+00:00 to 2030-05-01 "
        "12:30:00+00:00, priority from 100 to -7, throttle factor from 1 to 0.5."
    ]


@pytest.mark.conformance
@pytest.mark.parametrize("windows", [[], ["22:00-23:00"]])
def test_of_a_job_that_waits_for_others_the_time_after_them_is_edited(
    admin_client: Client, windows: list[str]
) -> None:
    job = held(time_windows=windows)

    shown = html(admin_client, page_url(job))
    response = save(admin_client, job, **TOMORROW)

    job.refresh_from_db()
    moment = datetime(2030, 5, 1, 22 if windows else 12, 0 if windows else 30, tzinfo=UTC)
    assert job.hold_time == moment
    moved = [said for said in messages_of(response) if "moved it" in said]
    assert moved == ["Its time windows moved it to 2030-05-01 22:00:00 UTC."] * bool(windows)
    [entry] = history(job)
    assert entry.endswith(f" to {moment:%Y-%m-%d %H:%M:%S}+00:00.")
    assert "9000" not in shown + entry + html(admin_client, page_url(job))


def held(**options: Any) -> Job:
    """A job that waits for another one."""
    first = hipq.enqueue("ask")
    return hipq.enqueue("echo", after=[first], **options)


@pytest.mark.conformance
def test_a_large_answer_is_not_read_for_the_page_of_its_job(admin_client: Client) -> None:
    job = JobFactory.create(state="running")
    large, small = (
        AnswerFactory.create(job=job, status="discarded", payload={"text": letter * size})
        for letter, size in (("x", 70_000), ("y", 10))
    )

    page = html(admin_client, page_url(job))

    assert "xxxx" not in page
    assert "y" * 10 in page
    size = len(json.dumps(large.payload))
    said = f'<span class="hipq-age">{size:,} characters, too many for a preview</span>'
    assert f'<a href="{page_url(large)}">{said}</a>' in page
    assert page_url(small) not in page


# Somebody else was first


@pytest.mark.conformance
def test_an_edit_is_refused_when_a_worker_claimed_the_job_meanwhile(admin_client: Client) -> None:
    job = hipq.enqueue("ask")
    opened = form_values(admin_client, job)
    HandWorker().run_pass()

    response = save(admin_client, job, opened, priority="1")

    assert messages_of(response) == [
        f"job {job.pk} was not changed: its state is running by now, attempt 1. Only jobs in "
        "the states initial and retry can be edited; this page shows it as it is now."
    ]
    job.refresh_from_db()
    assert (job.state, job.priority) == ("running", 100)
    assert history(job) == []
