"""The lists and pages of schedules: when they are due, what became of it, and deleting one."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models import Job, Schedule
from hipq_django.schedules import declared as declared_schedules
from tests.admin_pages import act, history, html, list_url, log_in, messages_of, page_url, press
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

HOURLY = hipq.Cron("0 * * * *", "Europe/Paris", overlap="allow")


@pytest.fixture
def schedule() -> Schedule:
    return hipq.schedule("hourly", hipq.NewJob("echo", {"shop": "berlin"}), HOURLY)


def test_a_schedule_says_when_it_is_due_and_what_became_of_it(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    job = hipq.run_schedule("hourly")
    hipq.pause_schedule("hourly", "the bank is closed")

    listed, page = html(client, list_url(Schedule)), html(client, page_url(schedule))

    for text in ("hourly", "0 * * * *", "the bank is closed", "run by hand", f"job {job.pk}"):
        assert text in listed
    assert f"{HOURLY.explanation} (Europe/Paris)</span>" in listed
    assert page.count("UTC)") == 5
    assert "berlin" in page
    assert f'{page_url(job)}">job {job.pk}</a>' in page.partition("field-live_jobs")[2][:400]


def dots(client: Client, schedule: Schedule) -> list[tuple[str, str]]:
    """Return the colours and texts of the dots on the page of a schedule."""
    dot = r'hipq-dot (hipq-\w+)" role="img" title="[^"]+: ([^"]+)" aria'
    return re.findall(dot, html(client, page_url(schedule)))


def last_run(client: Client) -> str:
    """Return what the list says of the last run of its only schedule, without tags."""
    [column] = re.findall(r'class="field-last_run">(.*?)</td>', html(client, list_url(Schedule)))
    return re.sub(r"<[^>]+>", "", column)


def test_the_runs_of_two_weeks_are_dots_that_say_what_became_of_them(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    jobs = [hipq.run_schedule("hourly") for _ in range(3)]
    run_due_jobs()
    hipq.run_schedule("hourly")
    schedule.runs.filter(job_id=jobs[0].pk).update(due_time=timezone.now() - timedelta(days=15))
    Job.objects.filter(pk=jobs[1].pk).delete()

    assert dots(client, schedule) == [
        ("hipq-cancelled", "run by hand"),  # its job was deleted
        ("hipq-succeeded", "succeeded"),
        ("hipq-initial", "initial"),
    ]


def test_the_list_says_how_the_job_of_the_last_run_stands(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    assert last_run(client) == "-"

    job = hipq.run_schedule("hourly")
    assert last_run(client).endswith(f"run by hand job {job.pk} initial")
    Job.objects.all().delete()
    assert last_run(client).endswith(f"run by hand job {job.pk}")


def test_a_run_that_was_skipped_does_not_stand_as_the_job_in_its_way(
    client: Client, schedule: Schedule
) -> None:
    Schedule.objects.update(overlap="skip", next_time=timezone.now())
    log_in(client, "view_schedule", "view_job")
    job = hipq.run_schedule("hourly")
    schedule.runs.all().delete()
    run_due_jobs()

    assert last_run(client).endswith(f"skipped job {job.pk} job {job.pk} is initial")
    assert dots(client, schedule) == [("hipq-cancelled", "skipped")]


def test_the_list_costs_no_query_for_each_schedule(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    log_in(client, "view_schedule")
    for number in range(20):
        hipq.schedule(f"number {number}", hipq.NewJob("echo"), HOURLY)
        hipq.run_schedule(f"number {number}")

    with django_assert_max_num_queries(12):
        html(client, list_url(Schedule))


def test_all_that_keeps_a_schedule_from_being_fired_is_shown(
    client: Client, schedule: Schedule
) -> None:
    hipq.pause_schedule("hourly", "the bank is closed")
    long_ago = timezone.now() - timedelta(days=3)
    Schedule.objects.update(
        cron="61 * * * *", problem="bad minute", retired=True, next_time=long_ago
    )
    log_in(client, "view_schedule")
    said = ["in trouble</span> bad minute", "paused</span> the bank is closed", "retired</span>"]

    for page in (html(client, list_url(Schedule)), html(client, page_url(schedule))):
        assert [text for text in said if text not in page] == []
        assert "active</span>" not in page
        assert "3 d" not in page


# Deleting


def test_a_schedule_is_deleted_after_a_confirmation(client: Client, schedule: Schedule) -> None:
    log_in(client, "view_schedule", "delete_schedule")
    job = hipq.run_schedule("hourly")

    response = press(client, "delete", schedule)

    assert response.redirect_chain == [(list_url(Schedule), 302)]
    assert messages_of(response) == ["Deleted: schedule hourly."]
    assert not Schedule.objects.exists()
    assert Job.objects.get() == job
    assert history(schedule) == ["Deleted."]


@pytest.mark.parametrize("is_retired", [False, True])
def test_of_several_only_those_that_no_code_declares_are_deleted(
    client: Client, declare: Declare, schedule: Schedule, is_retired: bool
) -> None:
    declare.task("clean", schedule="30 2 * * *")(lambda: None)
    declared_schedules.sync("default")
    declared = Schedule.objects.get(name="clean")
    if is_retired:
        declare.forget_all()
        Schedule.objects.update(retired=True)
    log_in(client, "view_schedule", "delete_schedule")

    has_button = page_url(declared, "delete") in html(client, page_url(declared))
    said = messages_of(act(client, "delete", declared, schedule, confirmed="1"))

    assert has_button == is_retired
    assert [*Schedule.objects.all()] == ([] if is_retired else [declared])
    if not is_retired:
        assert "pause it, or remove it from the code" in said[-1]
