"""What an operator does to a schedule on its page: runs, pauses, resumes and deletes it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.db.models.signals import pre_delete
from django.test import Client
from django.urls import reverse

import hipq_django as hipq
from hipq_django.exceptions import InvalidScheduleError
from hipq_django.models import Job, Schedule
from hipq_django.schedules import declared as declared_schedules
from tests.admin_pages import (
    ACTION_BOX,
    act,
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
    press,
)
from tests.declaring import Declare

pytestmark = pytest.mark.django_db

PERMISSIONS = ("add", "change", "delete", "run", "pause")


@pytest.fixture
def schedule() -> Schedule:
    return hipq.schedule("hourly", hipq.NewJob("echo"), hipq.Cron("0 * * * *", overlap="allow"))


@pytest.fixture
def declared(declare: Declare) -> Schedule:
    declare.task("clean", schedule="30 2 * * *")(lambda: None)
    declared_schedules.sync("default")
    return Schedule.objects.get()


def others_than(*permissions: str) -> set[str]:
    return {f"{verb}_schedule" for verb in PERMISSIONS} - set(permissions)


def test_what_a_button_cannot_do_is_said(admin_client: Client) -> None:
    row = hipq.schedule("once", hipq.NewJob("echo"), hipq.Every(hours=1))
    hipq.run_schedule("once")

    response = press(admin_client, "run_now", row)

    assert "wait for its end, or cancel it" in messages_of(response)[0]
    assert Job.objects.count() == 1


def test_the_page_names_live_jobs_and_says_the_times_in_words(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "view_job")
    job = hipq.run_schedule("hourly")
    page = html(client, page_url(schedule))

    assert hipq.Cron("0 * * * *").explanation in page
    assert f'{page_url(job)}">job {job.pk}</a>' in page.partition("field-live_jobs")[2][:400]


def test_a_declared_schedule_is_paused_and_run_on_its_page(
    client: Client, declared: Schedule
) -> None:
    log_in(client, "view_schedule", "run_schedule", "pause_schedule")

    press(client, "run_now", declared)
    press(client, "pause", declared)

    assert Job.objects.count() == 1
    assert Schedule.objects.get().paused


# Deleting


@pytest.mark.conformance
def test_a_schedule_is_deleted_after_a_confirmation(client: Client, schedule: Schedule) -> None:
    log_in(client, "view_schedule", "delete_schedule")
    job = hipq.run_schedule("hourly")
    delete = page_url(schedule, "delete")

    assert delete in html(client, page_url(schedule))
    assert "hourly" in html(client, delete)
    assert Schedule.objects.exists()

    response = client.post(delete, {"post": "yes"}, follow=True)
    assert response.status_code == 200
    assert not Schedule.objects.exists()
    assert Job.objects.get() == job
    assert LogEntry.objects.get().action_flag == DELETION


def test_nobody_else_deletes(client: Client, schedule: Schedule) -> None:
    log_in(client, "view_schedule", *others_than("delete_schedule"))

    assert page_url(schedule, "delete") not in html(client, page_url(schedule))
    assert client.post(page_url(schedule, "delete"), {"post": "yes"}).status_code == 403
    act(client, "delete_selected", schedule, post="yes")
    assert Schedule.objects.exists()


@pytest.mark.parametrize("paused", [False, True])
def test_what_the_code_declares_is_not_deleted(
    client: Client, declared: Schedule, paused: bool
) -> None:
    Schedule.objects.update(paused=paused)
    log_in(client, "view_schedule", "delete_schedule")

    assert page_url(declared, "delete") not in html(client, page_url(declared))
    response = client.post(page_url(declared, "delete"), {"post": "yes"}, follow=True)
    assert "change the code, or pause it" in messages_of(response)[0]
    assert Schedule.objects.exists()


def test_nobody_is_told_why_what_he_may_not_delete_stays(
    client: Client, declared: Schedule
) -> None:
    log_in(client, "view_schedule", *others_than("delete_schedule"))

    assert client.post(page_url(declared, "delete"), {"post": "yes"}).status_code == 403


def test_a_retired_schedule_can_be_deleted(
    client: Client, declare: Declare, declared: Schedule
) -> None:
    declare.forget_all()
    Schedule.objects.update(retired=True)
    log_in(client, "view_schedule", "delete_schedule")

    assert page_url(declared, "delete") in html(client, page_url(declared))
    assert "Are you sure" in html(client, page_url(declared, "delete"))
    client.post(page_url(declared, "delete"), {"post": "yes"})
    assert not Schedule.objects.exists()


@pytest.mark.conformance
def test_of_several_only_those_that_no_code_declares_are_deleted(
    client: Client, declared: Schedule, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "delete_schedule")
    row = Schedule.objects.get(name="hourly")

    asked = act(client, "delete_selected", declared, row)
    assert "change the code, or pause it" in messages_of(asked)[0]
    assert Schedule.objects.count() == 2

    act(client, "delete_selected", row, post="yes")
    assert Schedule.objects.get() == declared
    assert client.get(reverse("admin:hipq_schedule_changelist")).status_code == 200


@pytest.fixture
def known_here(declare: Declare) -> Schedule:
    """One that the code of this process declares; no worker has that code yet."""
    row = hipq.schedule("clean", hipq.NewJob("echo"), "0 * * * *")
    declare.task("clean", schedule="30 2 * * *")(lambda: None)
    return row


def test_what_no_worker_declares_yet_is_deleted_neither_alone_nor_with_others(
    client: Client, schedule: Schedule, known_here: Schedule
) -> None:
    log_in(client, "view_schedule", "delete_schedule")

    assert page_url(known_here, "delete") not in html(client, page_url(known_here))
    page = act(client, "delete_selected", schedule, known_here, post="yes")

    said = "schedule clean is declared in code: change the code, or pause it."
    assert messages_of(page) == [said, "Successfully deleted 1 schedule."]
    assert Schedule.objects.get() == known_here
    assert LogEntry.objects.get().object_id == str(schedule.pk)


@pytest.mark.conformance
def test_where_one_cannot_be_deleted_none_is_and_none_has_it_in_its_history(
    client: Client, schedule: Schedule
) -> None:
    log_in(client, "view_schedule", "delete_schedule")
    daily = hipq.schedule("daily", hipq.NewJob("echo"), "0 2 * * *")

    def refuse(instance: Schedule, **_: Any) -> None:
        if instance.name == "daily":
            raise InvalidScheduleError("the shop needs it")

    pre_delete.connect(refuse, sender=Schedule)
    try:
        page = act(client, "delete_selected", schedule, daily, post="yes")
    finally:
        pre_delete.disconnect(refuse, sender=Schedule)

    assert messages_of(page) == ["the shop needs it"]
    assert Schedule.objects.count() == 2
    assert not LogEntry.objects.exists()


def test_a_selection_of_declared_ones_alone_asks_nothing(
    client: Client, declared: Schedule
) -> None:
    log_in(client, "view_schedule", "delete_schedule")
    sent = {"action": "delete_selected", ACTION_BOX: [declared.pk], "post": "yes"}

    assert client.post(list_url(Schedule), sent).status_code == 302
    assert Schedule.objects.exists()
