"""Schedules that operators make and change in the admin, and due times they catch up."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import Job, Schedule
from hipq_django.schedules import declared as declared_schedules
from tests.admin_pages import (
    confirm,
    form_values,
    history,
    html,
    log_in,
    messages_of,
    page_url,
)
from tests.declaring import Declare

pytestmark = pytest.mark.django_db

ADD = reverse("admin:hipq_schedule_add")
FOCUSES_THE_FIRST_FIELD = "admin/js/change_form.js"
NEW: dict[str, Any] = {
    "name": "nightly",
    "type_name": "echo",
    "job_data": '{"shop": "berlin"}',
    "cron": "30 2 * * *",
    "every_seconds": "",
    "time_zone": "Europe/Paris",
    "overlap": "skip",
    "catch_up": "last",
    "catch_up_seconds": "86400",
    "jitter": "0",
    "start_time_0": "",
    "start_time_1": "",
    "end_time_0": "",
    "end_time_1": "",
}


@pytest.fixture
def schedule() -> Schedule:
    return hipq.schedule("hourly", hipq.NewJob("echo", {"shop": "berlin"}), "0 * * * *")


@pytest.mark.conformance
def test_a_schedule_is_made_by_the_form(client: Client) -> None:
    log_in(client, "view_schedule", "add_schedule")
    assert "Job type" in html(client, ADD)
    response = client.post(ADD, NEW)

    assert response.status_code == 302, response.content.decode()
    row = Schedule.objects.get()
    assert (row.name, row.cron, row.time_zone) == ("nightly", "30 2 * * *", "Europe/Paris")
    assert row.job_data == {"shop": "berlin"}
    assert row.next_time is not None
    assert LogEntry.objects.get().object_id == str(row.pk)
    assert history(row) == ["Made by hand."]
    client.post(ADD, NEW | {"name": "often", "cron": "", "time_zone": "", "every_seconds": "90"})
    assert Schedule.objects.get(name="often").every_seconds == 90


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cron": "61 * * * *"}, "61"),
    ({"cron": "61 * * * *", "_preview": "1"}, "Please correct the error below."),
    ({"every_seconds": "60"}, "Give either a cron text with its time zone, or seconds"),
    ({"cron": "", "time_zone": "", "every_seconds": "0.5"}, "1 second"),
    ({"time_zone": "Europe/Pariss"}, "Europe/Paris"),
    ({"job_data": "{not json"}, "Enter a valid JSON."),
    ({"type_name": "nobody.declares"}, "nobody.declares is not one of the available choices"),
    ({"jitter": "-1"}, "jitter"),
    ({"name": "hourly"}, "change that one"),
]


@pytest.mark.conformance
def test_what_cannot_be_is_said_and_nothing_is_written(client: Client, schedule: Schedule) -> None:
    log_in(client, "view_schedule", "add_schedule")
    for change, said in WRONG:
        response = client.post(ADD, NEW | change)

        assert response.status_code == 200, change
        assert said in response.content.decode()
        assert Schedule.objects.get().cron == "0 * * * *"


CARD = "4111111111111111"
STORED = {"card": CARD, "order": 42, "to": [{"card": 7}], "note": f"card {CARD}"}
SHOWN = {"card": "•••", "order": 42, "to": [{"card": "•••"}], "note": "card •••"}


@pytest.fixture
def charging(declare: Declare) -> Schedule:
    """A schedule whose jobs have sensitive data."""
    declare("charge", sensitive=["card"])(lambda job: None)
    return hipq.schedule("charging", hipq.NewJob("charge", STORED), "0 * * * *")


def posted(client: Client, schedule: Schedule, **values: str) -> str:
    """Return what the page says to a change; empty text if it was made."""
    shown = form_values(client, schedule)
    response = client.post(page_url(schedule), shown | values)
    return "" if response.status_code == 302 else unescape(response.content.decode())


def test_the_form_shows_no_sensitive_value(client: Client, charging: Schedule) -> None:
    log_in(client, "view_schedule", "change_schedule")

    assert CARD not in html(client, page_url(charging))
    assert json.loads(form_values(client, charging)["job_data"]) == SHOWN
    assert CARD not in posted(client, charging, cron="61 * * * *")
    assert CARD not in posted(client, charging, _preview="1")


@pytest.mark.parametrize(
    ("edited", "stored"),
    [(SHOWN, STORED), ({"order": 43, "card": "5"}, {"order": 43, "card": "5"})],
    ids=["left", "replaced"],
)
def test_data_that_are_masked_are_left_or_replaced_as_a_whole(
    client: Client, charging: Schedule, edited: Any, stored: Any
) -> None:
    log_in(client, "view_schedule", "change_schedule")

    assert not posted(client, charging, cron="5 * * * *", job_data=json.dumps(edited))

    charging.refresh_from_db()
    assert (charging.job_data, charging.cron) == (stored, "5 * * * *")
    [message] = history(charging)
    assert ("job data" in message) == (edited != SHOWN)
    assert CARD not in message


@pytest.mark.parametrize("edited", [SHOWN | {"order": 43}, {"card": "•••"}, {"crad": "•••"}])
def test_data_that_are_masked_are_not_edited(
    client: Client, charging: Schedule, edited: Any
) -> None:
    log_in(client, "view_schedule", "change_schedule")

    says = "••• stands for a value that is not shown: replace all that has it"
    assert says in posted(client, charging, job_data=json.dumps(edited))
    charging.refresh_from_db()
    assert charging.job_data == STORED


def test_another_job_type_does_not_reveal_what_was_masked(
    client: Client, charging: Schedule
) -> None:
    log_in(client, "view_schedule", "change_schedule")

    said = posted(client, charging, type_name="echo")

    assert "••• stands for a value that is not shown" in said
    assert not posted(client, charging, type_name="echo", job_data='{"card": "5"}')
    charging.refresh_from_db()
    assert (charging.job_type.name, charging.job_data) == ("echo", {"card": "5"})


def test_what_refuses_stored_arguments_quotes_no_sensitive_value(
    client: Client, declare: Declare, settings: Settings
) -> None:
    """Another release may take other arguments."""
    settings.HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}

    @declare.task("charge", sensitive=["card"])
    def charge(card: int, note: str = "") -> None: ...

    row = hipq.schedule("charging", charge.new(1), "0 * * * *")
    Schedule.objects.update(job_data={"card": "DE02120300"})
    log_in(client, "view_schedule", "change_schedule")

    said = posted(client, row, cron="5 * * * *")

    assert "charge: argument card: Input should be a valid integer" in said
    assert "DE02120300" not in said


# One that the code declares


@pytest.fixture
def declared(declare: Declare) -> Schedule:
    spec = hipq.Cron("30 2 * * *", zone="Europe/Paris", jitter=5)
    declare.task("clean", schedule=spec)(lambda: None)
    declared_schedules.sync("default")
    return Schedule.objects.get()


def test_of_what_the_code_declares_the_times_are_changed(
    client: Client, declare: Declare, declared: Schedule
) -> None:
    log_in(client, "view_schedule", "change_schedule")
    values = form_values(client, declared)
    assert not values.keys() & {"name", "type_name", "job_data", "instance"}
    line = html(client, page_url(declared)).partition("field-source")[2].partition("field-cron")[0]
    assert "they stay until hipq_sync --reset" in line
    asked = values | {"cron": "15 4 * * *", "overlap": "wait"}

    preview = client.post(page_url(declared), asked | {"_preview": "1"}).content.decode()
    assert " 04:15:00 CE" in preview
    assert Schedule.objects.get().cron == "30 2 * * *"
    assert client.post(page_url(declared), asked | {"name": "other"}).status_code == 302

    row = Schedule.objects.get()
    assert (row.name, row.cron, row.overlap, row.jitter) == ("clean", "15 4 * * *", "wait", 5)
    assert row.next_time is not None
    assert row.shown(row.next_time).hour == 4
    assert history(row) == ["Changed cron, overlap."]
    declared_schedules.sync("default")
    assert Schedule.objects.get().cron == "15 4 * * *"


# In one of several instances


@pytest.fixture
def second(settings: Settings, declare: Declare) -> None:
    """A second instance on the same database."""
    settings.HIPQ = {"default": {}, "second": {"DATABASE": "default"}}
    declare("echo", instance="second")(lambda job: None)


def test_a_schedule_is_made_in_the_instance_that_is_chosen(
    client: Client, declare: Declare, second: None
) -> None:
    declare.task("clean", instance="second")(lambda shop: None)
    log_in(client, "view_schedule", "add_schedule")
    page = html(client, ADD)
    assert re.findall(r'<option value="(default|second)"', page) == ["default", "second"]
    assert '<option value="clean"' in page
    asked = NEW | {"type_name": "clean"}

    refused = client.post(ADD, asked | {"instance": "default"})
    assert "No code declares this job type." in refused.content.decode()
    assert client.post(ADD, asked | {"instance": "second"}).status_code == 302

    row = Schedule.objects.get()
    assert (row.instance, row.job_type.instance, row.name) == ("second", "second", "nightly")
    assert client.post(ADD, NEW | {"instance": "default"}).status_code == 302  # of the same name


# Before it is saved


def test_arguments_are_checked_against_the_signature(client: Client, declare: Declare) -> None:
    declare.task("clean")(lambda shop: None)
    log_in(client, "view_schedule", "add_schedule")
    wrong = client.post(ADD, NEW | {"type_name": "clean", "job_data": '{"shops": "berlin"}'})

    assert wrong.status_code == 200
    assert "shops" in wrong.context["adminform"].form.non_field_errors()[0]
    assert not Schedule.objects.exists()
    right = client.post(ADD, NEW | {"type_name": "clean", "job_data": '{"shop": "berlin"}'})
    assert right.status_code == 302


def test_the_next_due_times_are_shown_before_it_is_saved(client: Client) -> None:
    log_in(client, "view_schedule", "add_schedule")
    asked = NEW | {"start_time_0": "2031-03-29", "start_time_1": "00:00:00", "_preview": "1"}
    page = client.post(ADD, asked).content.decode()

    assert "At 02:30 every day" in page
    assert "2031-03-29 02:30:00 CET (2031-03-29 01:30:00 UTC)" in page
    moved = "2031-03-30 03:00:00 CEST (2031-03-30 01:00:00 UTC)"
    assert f'{moved} <span class="hipq-badge hipq-retry">moved' in page
    assert page.count("hipq-badge hipq-retry") == 1
    assert "Nothing is saved yet." in page
    assert FOCUSES_THE_FIRST_FIELD not in page
    assert FOCUSES_THE_FIRST_FIELD in client.get(ADD).content.decode()
    assert "Please correct the error" not in page
    assert not Schedule.objects.exists()


# What stands in the way


def test_a_row_that_cannot_be_read_can_be_corrected(client: Client, schedule: Schedule) -> None:
    Schedule.objects.update(cron="61 * * * *", problem="bad minute")
    log_in(client, "view_schedule", "change_schedule")
    values = form_values(client, schedule)

    assert values["cron"] == "61 * * * *"
    assert client.post(page_url(schedule), values).status_code == 200  # it says what is wrong
    client.post(page_url(schedule), values | {"cron": "15 * * * *"})
    assert Schedule.objects.get().cron == "15 * * * *"


# Backfill


def span(hours: int) -> dict[str, str]:
    end = timezone.now().replace(minute=30, second=0, microsecond=0) - timedelta(hours=1)
    start = end - timedelta(hours=hours)
    return {"start": f"{start:%Y-%m-%dT%H:%M}", "end": f"{end:%Y-%m-%dT%H:%M}"}


@pytest.mark.conformance
def test_due_times_that_have_passed_are_caught_up(client: Client, schedule: Schedule) -> None:
    Schedule.objects.update(overlap="allow")
    log_in(client, "view_schedule", "run_schedule")
    page = page_url(schedule, "backfill")
    assert page in html(client, page_url(schedule))
    assert "datetime-local" in html(client, page)
    response = confirm(client, "backfill", schedule, **span(hours=3))

    assert ", 3 jobs: schedule hourly." in messages_of(response)[0]
    assert Job.objects.count() == 3
    assert "Backfilled" in LogEntry.objects.get().change_message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (span(hours=1_200), "do it in parts"),
        ({"start": "2031-01-01T00:00", "end": "2031-01-02T00:00"}, "backfill"),
        ({"start": "", "end": ""}, "This field is required."),
    ],
)
def test_a_span_that_cannot_be_is_said(
    client: Client, schedule: Schedule, given: dict[str, str], said: str
) -> None:
    log_in(client, "view_schedule", "run_schedule")
    response = confirm(client, "backfill", schedule, **given)

    assert said in response.content.decode()
    assert not Job.objects.exists()


# Somebody else was first


def test_a_conflict_shows_no_sensitive_value(client: Client, charging: Schedule) -> None:
    log_in(client, "view_schedule", "change_schedule")
    opened = form_values(client, charging)
    other = CARD.replace("4", "5")
    Schedule.objects.update(job_data=STORED | {"order": 7, "card": other, "note": other})

    page = client.post(page_url(charging), opened | {"job_data": '{"order": 8}'})

    said = unescape(page.content.decode())
    assert "Somebody else has changed this" in said
    assert CARD not in said
    assert other not in said
