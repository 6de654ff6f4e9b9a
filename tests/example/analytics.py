"""Nightly reports: one job for each account, in the hours of the night."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.core.management import call_command
from django.db.models import QuerySet

from example_project.analytics.models import Account, Report
from example_project.analytics.nights import day_before, night_of, start_of
from example_project.events.models import Event
from hipq_django.models import Job
from tests.running import run_due_jobs

PARIS = ZoneInfo("Europe/Paris")
NIGHT = date(2026, 3, 3)


def paris(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=PARIS)


def enqueue_in_the_evening() -> None:
    with time_machine.travel(paris(2, 20), tick=False):
        call_command("nightly_analytics", verbosity=0)


def run_at(moment: datetime, *queues: str) -> int:
    with time_machine.travel(moment, tick=False):
        return run_due_jobs(*queues or ("analytics",))


def reports() -> QuerySet[Job]:
    return Job.objects.filter(job_type__name="nightly_report")


@pytest.fixture
def accounts(db: None) -> list[Account]:
    return [Account.objects.create(name=name) for name in ("acme", "bolt", "core")]


# The schedule


def test_the_reports_are_ordered_when_the_night_begins(accounts: list[Account]) -> None:
    run_at(paris(2, 20), "default")  # the worker starts, and makes the schedule
    run_at(paris(3, 0), "default")

    assert {job.job_key for job in reports()} == {f"{a.pk}-2026-03-03" for a in accounts}
    assert {job.scheduled_run_time for job in reports()} == {start_of(NIGHT)}


def test_a_worker_that_was_away_at_midnight_orders_them_when_it_is_back(
    accounts: list[Account],
) -> None:
    run_at(paris(2, 20), "default")
    run_at(paris(3, 5), "default", "analytics")

    assert {report.night for report in Report.objects.filter(is_ready=True)} == {NIGHT}


# The window


@pytest.mark.parametrize(
    ("moment", "ran"),
    [
        (paris(2, 23, 59), 0),
        (paris(3, 0, 0), 0),
        (paris(3, 0, 1), 3),
        (paris(3, 7, 59), 3),
        (paris(3, 8, 0), 0),
        (paris(3, 23, 0), 0),
        (paris(4, 0, 1), 3),
    ],
    ids=str,
)
def test_reports_are_made_from_a_minute_past_midnight_to_eight(
    accounts: list[Account], moment: datetime, ran: int
) -> None:
    enqueue_in_the_evening()

    assert run_at(moment) == ran


def test_reports_that_missed_their_night_wait_for_the_next(accounts: list[Account]) -> None:
    enqueue_in_the_evening()
    run_at(paris(3, 9))

    assert {job.scheduled_run_time for job in reports()} == {paris(4, 0, 1)}


# The report


def test_a_report_counts_the_events_of_the_day_before(accounts: list[Account]) -> None:
    midnight = paris(3, 0)
    times = {
        "before": midnight - timedelta(days=1, seconds=1),
        "first": midnight - timedelta(days=1),
        "last": midnight - timedelta(seconds=1),
        "after": midnight,
    }
    for name, moment in times.items():
        Event.objects.create(event_id=name, account="acme", name=name, create_time=moment)
    enqueue_in_the_evening()
    run_at(paris(3, 0, 1))

    counted = {r.account.name: r.events for r in Report.objects.filter(is_ready=True)}
    assert counted == {"acme": 2, "bolt": 0, "core": 0}


# The night


@pytest.mark.parametrize(
    ("moment", "night"),
    [
        (paris(3, 0), NIGHT),
        (paris(3, 7, 59), NIGHT),
        (paris(2, 8), NIGHT),
        (datetime(2026, 3, 2, 23, 30, tzinfo=UTC), NIGHT),
    ],
    ids=str,
)
def test_the_night_is_that_of_the_accounts_clock(moment: datetime, night: date) -> None:
    assert night_of(moment) == night


@pytest.mark.parametrize(
    ("night", "hours"), [(date(2026, 3, 30), 23), (date(2026, 10, 26), 25), (NIGHT, 24)]
)
def test_a_day_has_23_or_25_hours_when_the_clocks_change(night: date, hours: int) -> None:
    begin, end = (moment.astimezone(UTC) for moment in day_before(night))

    assert end - begin == timedelta(hours=hours)
