"""A site that registers the rows of one model alone: its pages open, without links to others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Answer, Job, Queue, Schedule
from tests.admin_pages import html, list_url, page_url
from tests.factories import AnswerFactory, JobFactory, WorkerFactory

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.lone_admin_urls")]

Rows = dict[type[Model], Any]


@pytest.fixture
def rows() -> Rows:
    """A row of each model, with all that its page would lead to."""
    now = clock.now("default")
    with hipq.batch("import") as batch:
        job = hipq.enqueue("ask", job_key="k", batch=batch)
    for outcome, error in (("failed", "boom"), ("timed_out", "late"), ("succeeded", "NONE")):
        JobFactory.create(
            state="final", outcome=outcome, error=error, job_type=job.job_type, queue=job.queue,
            update_time=now - timedelta(minutes=1),
        )  # fmt: skip
    Queue.objects.update(paused=True)
    hipq.schedule("hourly", hipq.NewJob("ask"), "0 * * * *")
    hipq.run_schedule("hourly")
    answer = AnswerFactory.create(job=None, status="unmatched")
    found: Any = (job, batch, job.queue, job.job_type, Schedule.objects.get(), answer)
    return {type(row): row for row in (*found, WorkerFactory.create())}


def test_lists_and_pages_open_alone(admin_client: Client, rows: Rows) -> None:
    for model, row in rows.items():
        urls = [list_url(model), page_url(row), page_url(row, "history")]
        urls += [page_url(row, "match")] if model is Answer else []
        others = {other._meta.model_name for other in rows} - {model._meta.model_name}

        for url in urls:
            page = html(admin_client, url.replace("/admin/", f"/only-{model.__name__.lower()}/"))
            assert [name for name in others if f"/hipq/{name}/" in page] == [], url


def test_actions_lead_back_to_the_page(admin_client: Client, rows: Rows) -> None:
    job, final, schedule = rows[Job], Job.objects.final()[0], rows[Schedule]
    acted = {"run_now": job, "pause": schedule, "cancel": job, "requeue": final}
    for action, row in acted.items():
        only = f"/only-{type(row).__name__.lower()}/"
        url = page_url(row, action).replace("/admin/", only)

        assert admin_client.post(url, {"confirmed": "1"}, follow=True).status_code == 200, action
