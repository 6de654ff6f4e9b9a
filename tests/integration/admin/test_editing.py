"""What holds for every form: what is written, what is refused, and who was first.

What else an edit leads to is tested with its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client

import hipq_django as hipq
from hipq_django.models import Job, JobType, Queue, Schedule
from tests.admin_pages import (
    form_values,
    history,
    log_in,
    messages_of,
    save,
)
from tests.factories import JobFactory, JobTypeFactory, QueueFactory

pytestmark = pytest.mark.django_db

TOMORROW = {"scheduled_run_time_0": "2030-05-01", "scheduled_run_time_1": "12:30:00"}
STARTS = {"start_time_0": "2032-05-01", "start_time_1": "12:30:00"}
THEN = datetime(2031, 1, 1, tzinfo=UTC)


def a_queue() -> Queue:
    queue: Queue = QueueFactory.create(throttle_limit=10)
    return queue


def a_type() -> JobType:
    row: JobType = JobTypeFactory.create(
        default_time_windows=["22:00-02:00", "05:00-07:00"], default_throttle_factor="0.5"
    )
    return row


def a_job() -> Job:
    job: Job = JobFactory.create(state="initial")
    return job


def a_held_job() -> Job:
    return hipq.enqueue("echo", after=[hipq.enqueue("ask")])


def a_schedule() -> Schedule:
    return hipq.schedule("hourly", hipq.NewJob("echo", {"shop": "berlin"}), "0 * * * *")


MAKERS = {"queue": a_queue, "jobtype": a_type, "job": a_job, "schedule": a_schedule}
EACH = pytest.mark.parametrize("kind", MAKERS)


def stored(row: Model) -> Any:
    return type(row)._default_manager.filter(pk=row.pk).values().get()


# What is written


@EACH
def test_a_page_that_is_saved_unedited_changes_nothing(admin_client: Client, kind: str) -> None:
    row = MAKERS[kind]()
    before = stored(row)

    save(admin_client, row)

    assert stored(row) == before
    assert history(row) == ["No fields changed."]


EDITS: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "queue": (
        {
            "throttle_limit": "2.5", "paused": "on", "retention_days": "30",
            "retention_days_succeeded": "1",
        },
        {
            "throttle_limit": Decimal("2.5"), "paused": True, "retention_days": 30,
            "retention_days_succeeded": 1,
        },
        "Changed paused from no to yes, throttle limit from 10 to 2.5, retention days from 14 to "
        "30, retention days succeeded from none to 1.",
    ),
    "jobtype": (
        {
            "default_timeout": "60", "default_priority": "5", "time_zone": "Europe/Paris",
            "default_time_windows": "22:00-02:00\r\n\r\n mon-fri 05:00-07:00\r\n",
        },
        {
            "default_timeout": 60, "default_priority": 5, "time_zone": "Europe/Paris",
            "default_time_windows": ["22:00-02:00", "mon-fri 05:00-07:00"],
        },
        "Changed default timeout from 86400 to 60, default priority from 100 to 5, default time "
        "windows from 22:00-02:00, 05:00-07:00 to 22:00-02:00, mon-fri 05:00-07:00, time zone "
        "from none to Europe/Paris.",
    ),
    "job": (
        {"priority": "-7", "throttle_factor": "0.5"},
        {"priority": -7, "throttle_factor": Decimal("0.5")},
        "Changed priority from 100 to -7, throttle factor from 1 to 0.5.",
    ),
    "schedule": (
        {"cron": "15 * * * *", "overlap": "wait"},
        {"cron": "15 * * * *", "overlap": "wait", "job_data": {"shop": "berlin"}},
        "Changed cron, overlap.",
    ),
}  # fmt: skip


@pytest.mark.conformance
@EACH
def test_an_edit_is_written_and_kept_in_the_history(client: Client, kind: str) -> None:
    row = MAKERS[kind]()
    log_in(client, f"view_{kind}", f"change_{kind}")
    edit, values, said = EDITS[kind]

    save(client, row, **edit)

    after = stored(row)
    assert {name: after[name] for name in values} == values
    assert history(row) == [said]


MOMENT = "give a moment from 1970 to 9000"
REFUSED: dict[str, list[tuple[str, str, str]]] = {
    "queue": [
        ("throttle_limit", "nan", "throttle_limit nan: give a number"),
        ("granularity_seconds", "0", "granularity_seconds 0: give a number from 0.001 to"),
        ("retention_days", "40000", "retention_days 40000: give a number from 0 to 36,500"),
        ("retention_days", "", "retention_days '': give a number from 0 to 36,500"),
        ("retention_days_succeeded", "x", "retention_days_succeeded 'x': give a number from 0"),
        ("order", "random", "random is not one of the available choices"),
    ],
    "jobtype": [
        ("default_timeout", "0", "timeout 0: give seconds above 0"),
        ("default_time_windows", "22:00", "time window '22:00': not two times"),
        ("time_zone", "Mars/Base", "time zone 'Mars/Base' is unknown"),
        ("queue", "0", "not one of the available choices"),
    ],
    "job": [
        ("priority", "", "priority '': give a whole number"),
        ("throttle_factor", "<b>", "throttle_factor '<b>': give a number"),
        ("scheduled_run_time_0", "9999-12-31", MOMENT),
    ],
    "schedule": [("cron", "hourly", "hourly")],
}


@EACH
def test_a_value_that_code_could_not_give_is_refused(admin_client: Client, kind: str) -> None:
    row = MAKERS[kind]()
    before, opened = stored(row), form_values(admin_client, row)

    for name, value, message in REFUSED[kind]:
        page = save(admin_client, row, opened, **{name: value}).content.decode()
        assert message in unescape(page)
        assert "<b>'" not in page
    assert (stored(row), history(row)) == (before, [])


@pytest.mark.parametrize("kind", ["job", "schedule"])
def test_a_moment_that_is_not_edited_stays_exactly_as_it_is(
    admin_client: Client, kind: str
) -> None:
    moment = datetime(2027, 10, 31, 1, 30, 0, 123456, tzinfo=UTC)
    row: Any
    if kind == "job":
        row, field = JobFactory.create(state="initial", scheduled_run_time=moment), "priority"
    else:
        every = hipq.Every(hours=1, start_time=moment)
        row, field = hipq.schedule("often", hipq.NewJob("echo"), every), "jitter"

    response = save(admin_client, row, **{field: "1"})

    after = stored(row)
    name = "scheduled_run_time" if kind == "job" else "start_time"
    assert (after[name], after[field]) == (moment, 1), response.content.decode()


# Somebody else was first


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("make", "theirs", "mine"),
    [
        (a_queue, {"throttle_limit": 20}, {"throttle_limit": "5"}),
        (a_queue, {"paused": True}, {"paused": "on"}),
        (
            a_type, {"default_time_windows": ["05:00-07:00"]},
            {"default_time_windows": "22:00-23:00"},
        ),
        (a_job, {"scheduled_run_time": THEN}, TOMORROW),
        (a_held_job, {"hold_time": THEN}, TOMORROW),
        (a_schedule, {"start_time": THEN}, STARTS),
        (a_schedule, {"job_data": {"shop": "paris"}}, {"job_data": '{"shop": "rome"}'}),
    ],
)  # fmt: skip
def test_what_somebody_else_changed_meanwhile_is_not_replaced(
    admin_client: Client, make: Callable[[], Any], theirs: dict[str, Any], mine: dict[str, str]
) -> None:
    row = make()
    opened = form_values(admin_client, row)
    type(row)._default_manager.filter(pk=row.pk).update(**theirs)
    before = stored(row)

    page = save(admin_client, row, opened, **mine).content.decode()

    assert "Somebody else has changed this since you opened the page." in page
    assert (stored(row), history(row)) == (before, [])
    assert "was changed successfully" in messages_of(save(admin_client, row, **mine))[-1]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("make", "theirs", "mine"),
    [
        (a_queue, {"paused": True, "retention_days": 3}, {"throttle_limit": "7"}),
        (a_queue, {"retention_days": 3}, {"retention_days_succeeded": "7"}),
        (a_type, {"default_priority": 1}, {"default_timeout": "77"}),
        (a_job, {"scheduled_run_time": THEN}, {"priority": "1"}),
        (a_schedule, {"cron": "15 4 * * *", "jitter": 7}, {"catch_up": "all"}),
    ],
)
def test_only_what_was_edited_is_written(
    admin_client: Client, make: Callable[[], Any], theirs: dict[str, Any], mine: dict[str, str]
) -> None:
    row = make()
    opened = form_values(admin_client, row)
    type(row)._default_manager.filter(pk=row.pk).update(**theirs)

    save(admin_client, row, opened, **mine)

    after = stored(row)
    assert {name: after[name] for name in theirs} == theirs
    [(name, value)] = mine.items()
    assert str(after[name]).startswith(value)
