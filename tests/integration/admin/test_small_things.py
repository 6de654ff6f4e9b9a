"""What pages call themselves, offer and link to."""

from __future__ import annotations

import re
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

import hipq_django as hipq
from hipq_django.flow.models import Graph, Node
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import html, list_url, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory, AttemptFactory, JobFactory, JobTypeFactory, WorkerFactory

pytestmark = pytest.mark.django_db


def test_a_list_says_what_it_lists(admin_client: Client) -> None:
    titles = {
        Queue: "Queues", Job: "Jobs", JobType: "Job types", Worker: "Workers", Answer: "Answers",
        Batch: "Batches", Schedule: "Schedules", Node: "Nodes", Graph: "Graphs",
    }  # fmt: skip
    for model, title in titles.items():
        page = html(admin_client, list_url(model))
        assert f"<title>{title} |" in page
        assert f"<h1>{title}</h1>" in page


def test_a_page_says_which_row_it_shows(admin_client: Client) -> None:
    job = JobFactory.create(job_key="order-7")

    assert f"<h1>Job {job.pk} (order-7)</h1>" in html(admin_client, page_url(job))
    assert f"<h1>Queue {job.queue.name}</h1>" in html(admin_client, page_url(job.queue))
    assert f"<h1>Job type {job.job_type.name}</h1>" in html(admin_client, page_url(job.job_type))
    answer = AnswerFactory.create(job_type="ask", job_key="key-0")
    assert f"<h1>Answer {answer.pk} for ask key-0</h1>" in html(admin_client, page_url(answer))


def test_a_page_gives_times_in_the_zone_of_the_site_first(
    admin_client: Client, declare: Declare
) -> None:
    declare("zoned", time_zone="Asia/Tokyo")(lambda job: None)
    opens = timezone.now() + timedelta(hours=9)
    tokyo = opens.astimezone(ZoneInfo("Asia/Tokyo"))
    window = f"{tokyo:%H:%M}-{tokyo + timedelta(minutes=1):%H:%M}"
    job = hipq.enqueue("zoned", time_windows=[window])

    shown = f"closed until {opens:%Y-%m-%d %H:%M}:00 UTC ({tokyo:%Y-%m-%d %H:%M}:00 JST)."
    assert shown in html(admin_client, page_url(job))


def attempts_of(client: Client, job: Job) -> list[dict[str, str]]:
    """Return the texts of the cells in the table of attempts, by the names of the columns."""
    table = html(client, page_url(job)).partition("<h2>Attempts</h2>")[2].partition("</table>")[0]
    rows = [re.findall(r'<td data-label="(.*?)">(.*?)</td>', row) for row in table.split("<tr>")]
    return [{name: strip_tags(text) for name, text in row} for row in rows if row]


def test_a_success_tells_how_long_its_own_attempt_took(admin_client: Client) -> None:
    begun = timezone.now() - timedelta(hours=2)
    job = JobFactory.create(
        state="final", attempt=2, update_time=begun + timedelta(seconds=90),
        timeout=600, extended_seconds=60, deadline=begun + timedelta(seconds=660),
        last_worker_id=WorkerFactory.create(name="shop:8").pk,
    )  # fmt: skip
    AttemptFactory.create(
        job=job, attempt=1, worker="shop:7", start_time=begun - timedelta(hours=5)
    )

    rows = {cells["Attempt"]: cells for cells in attempts_of(admin_client, job)}

    assert {number: cells["Worker"] for number, cells in rows.items()} == {
        "1": "shop:7", "2": "shop:8",
    }  # fmt: skip
    assert rows["2"]["Took"] == "1 min 30 s"
    assert rows["2"]["Started"].startswith(f"{begun:%Y-%m-%d %H:%M:%S UTC} ")


def test_lists_say_how_jobs_ended_lately(admin_client: Client) -> None:
    WorkerFactory.create()
    kind = JobTypeFactory.create()
    for number in range(12):
        outcome = {"outcome": "failed", "error": "boom"} if number else {}
        JobFactory.create(job_type=kind, state="final", **outcome)

    for row, name in ((kind.queue, "queue"), (kind, "type")):
        for page in (html(admin_client, list_url(type(row))), html(admin_client, page_url(row))):
            assert "12 ended" in page
            assert f"?{name}={row.pk}&amp;outcome=failed&amp;ended=hour" in page
            assert ">failing<" in page
