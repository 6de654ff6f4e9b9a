"""The admin of an instance whose rows are in another database."""

from __future__ import annotations

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.models import Answer, Job, JobType, Queue, Schedule, Worker
from tests.admin_pages import history, html, list_url, page_url
from tests.declaring import Declare

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
    pytest.mark.urls("tests.other_admin_urls"),
]


def other(url: str) -> str:
    return url.replace("/admin/", "/other-admin/")


@pytest.fixture
def job() -> Job:
    """A waiting job in the other database."""
    return hipq.enqueue("ask", {"order": 42}, job_key="order-42", instance="other")


def test_each_site_lists_the_rows_of_its_database(admin_client: Client, job: Job) -> None:
    assert "order-42" in html(admin_client, other(list_url(Job)))
    assert "order-42" in html(admin_client, other(list_url(Job)), q="order-42")
    assert "order-42" in html(admin_client, other(list_url(Job)), queue=job.queue_id)
    assert "order-42" not in html(admin_client, list_url(Job))


@pytest.mark.parametrize("model", [Answer, JobType, Queue, Worker])
def test_each_list_and_page_opens(admin_client: Client, job: Job, model: type) -> None:
    hipq.complete("ask", "order-43", "yes", instance="other")
    Worker.objects.using("other").create(instance="other", name="w")

    page = html(admin_client, other(list_url(model)))

    assert f'href="{other(list_url(Job))}' in page or model is Worker
    for row in model.objects.using("other"):  # type: ignore[attr-defined]  # any model
        html(admin_client, other(page_url(row)))


def test_a_job_of_the_other_database_is_edited_and_run_there(
    admin_client: Client, job: Job
) -> None:
    url = other(page_url(job))
    assert 'href="/other-admin/hipq/queue/' in html(admin_client, url)

    admin_client.post(
        url,
        {
            "scheduled_run_time_0": "2030-05-01",
            "scheduled_run_time_1": "12:30:00",
            "priority": "5",
            "throttle_factor": "1",
        },
    )
    edited = Job.objects.using("other").get(pk=job.pk)
    admin_client.post(other(page_url(job, "run_now")))
    hurried = Job.objects.using("other").get(pk=job.pk)

    assert (edited.priority, edited.scheduled_run_time.year) == (5, 2030)
    assert hurried.scheduled_run_time < edited.scheduled_run_time
    assert len(history(job)) == 2


def test_a_schedule_is_made_in_the_instance_of_the_other_database(
    admin_client: Client, declare: Declare
) -> None:
    declare("close the day", instance="other")(lambda job: None)
    add = other(f"{list_url(Schedule)}add/")
    page = html(admin_client, add)
    assert '<option value="close the day"' in page
    assert 'name="instance"' not in page  # the database has one only

    values = {"name": "nightly", "type_name": "close the day", "cron": "30 2 * * *"}
    shared = {"overlap": "skip", "catch_up": "last", "catch_up_seconds": "0", "jitter": "0"}
    assert admin_client.post(add, values | shared).status_code == 302

    row = Schedule.objects.using("other").get()
    assert (row.instance, row.job_type.instance) == ("other", "other")
    assert "nightly" in html(admin_client, other(list_url(Schedule)))
