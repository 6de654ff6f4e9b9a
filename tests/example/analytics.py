"""Nightly reports: one job for each account, in the hours of the night."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.core.management import call_command

from example_project.analytics.models import Account, Report
from example_project.analytics.nights import day_before, night_of, start_of
from example_project.events.models import Event
from hipq_django.models import Job
from hipq_django.testing import run_due_jobs

PARIS = ZoneInfo("Europe/Paris")
NIGHT = date(2026, 3, 3)


def paris(day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=PARIS)


def enqueue_in_the_evening() -> None:
    with time_machine.travel(paris(2, 20), tick=False):
        call_command("nightly_analytics", verbosity=0)


def run_at(moment: datetime) -> int:
    with time_machine.travel(moment, tick=False):
        return run_due_jobs("analytics")


@pytest.fixture
def accounts(db: None) -> list[Account]:
    return [Account.objects.create(name=name) for name in ("acme", "bolt", "core")]


# The command


def test_each_account_gets_one_job(accounts: list[Account]) -> None:
    enqueue_in_the_evening()

    assert set(Job.objects.values_list("job_key", flat=True)) == {
        f"{account.pk}-2026-03-03" for account in accounts
    }
    assert {job.scheduled_run_time for job in Job.objects.all()} == {start_of(NIGHT)}


def test_the_command_again_changes_nothing(accounts: list[Account]) -> None:
    enqueue_in_the_evening()
    enqueue_in_the_evening()

    assert Job.objects.count() == len(accounts)


def test_the_command_after_the_jobs_have_run_changes_nothing(accounts: list[Account]) -> None:
    enqueue_in_the_evening()
    run_at(paris(3, 0, 1))
    with time_machine.travel(paris(3, 1), tick=False):
        call_command("nightly_analytics", verbosity=0)

    assert Job.objects.count() == len(accounts)


def test_the_command_again_adds_an_account_that_is_new(accounts: list[Account]) -> None:
    enqueue_in_the_evening()
    new = Account.objects.create(name="dart")
    enqueue_in_the_evening()

    assert Job.objects.count() == len(accounts) + 1
    assert Job.objects.filter(job_key=f"{new.pk}-2026-03-03").exists()


def test_the_next_night_has_jobs_of_its_own(accounts: list[Account]) -> None:
    enqueue_in_the_evening()
    with time_machine.travel(paris(3, 20), tick=False):
        call_command("nightly_analytics", verbosity=0)

    assert Job.objects.count() == 2 * len(accounts)


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

    assert {job.scheduled_run_time for job in Job.objects.all()} == {paris(4, 0, 1)}


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

    reports = {r.account.name: r.events for r in Report.objects.filter(is_ready=True)}
    assert reports == {"acme": 2, "bolt": 0, "core": 0}


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
