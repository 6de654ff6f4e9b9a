"""Reminders: queued ahead, put off, called off, and listed each morning."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.mail import send_mail
from django.test import Client

from example_project.reminders import jobs
from example_project.reminders.models import Reminder
from hipq_django.models import Job
from hipq_django.testing import assert_enqueued, run_job
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
FORM = {"text": "Call the bank", "email": "ada@example.com", "minutes": "30"}


def at(minutes: int) -> time_machine.travel:
    """Return the context in which it is so many minutes after noon."""
    return time_machine.travel(NOON + timedelta(minutes=minutes), tick=False)


@pytest.fixture
def reminder(client: Client) -> Reminder:
    """A reminder that is planned for half past twelve."""
    with at(0):
        client.post("/reminders/", FORM)
    return Reminder.objects.get()


def live_jobs() -> list[Job]:
    return list(Job.objects.live())


def test_a_reminder_is_queued_ahead(reminder: Reminder) -> None:
    job = assert_enqueued("send_reminder", job_key=reminder.key)

    assert job.scheduled_run_time == reminder.remind_time == NOON + timedelta(minutes=30)


def test_a_reminder_is_sent_when_its_time_has_come(reminder: Reminder) -> None:
    with at(29):
        assert run_due_jobs() == 0
    with at(30):
        assert run_due_jobs() == 1

    [message] = mail.outbox
    assert (message.to, message.body) == (["ada@example.com"], "Call the bank")


def test_putting_a_reminder_off_replaces_its_job(client: Client, reminder: Reminder) -> None:
    with at(20):
        client.post(f"/reminders/{reminder.pk}/put-off/")

    [job] = live_jobs()
    assert job.scheduled_run_time == NOON + timedelta(minutes=40)


def test_a_reminder_that_is_done_is_called_off(client: Client, reminder: Reminder) -> None:
    with at(20):
        client.post(f"/reminders/{reminder.pk}/done/")

    assert Job.objects.get().outcome == Job.Outcome.CANCELLED


def test_a_job_whose_reminder_is_done_by_now_sends_nothing(reminder: Reminder) -> None:
    Reminder.objects.update(is_done=True)

    with at(30):
        run_due_jobs()

    assert Job.objects.get().result == "nothing to send"
    assert mail.outbox == []


def test_a_reminder_that_was_sent_can_no_longer_be_put_off(
    client: Client, reminder: Reminder
) -> None:
    with at(30):
        run_due_jobs()
        response = client.post(f"/reminders/{reminder.pk}/put-off/")

    assert response.status_code == 404
    assert live_jobs() == []


def test_a_reminder_that_is_just_being_sent_is_not_put_off(
    client: Client, reminder: Reminder
) -> None:
    Job.objects.update(state=Job.State.RUNNING, attempt=1)

    with at(30):
        page = client.post(f"/reminders/{reminder.pk}/put-off/", follow=True)

    assert "just being sent" in page.text
    reminder.refresh_from_db()
    assert reminder.remind_time == NOON + timedelta(minutes=30)


def test_the_page_shows_the_reminders(client: Client, reminder: Reminder) -> None:
    assert reminder.text in client.get("/reminders/").text


# The list of the morning


def at_seven(day: int) -> time_machine.travel:
    return time_machine.travel(datetime(2026, 3, day, 7, tzinfo=UTC), tick=False)


@pytest.fixture
def agenda(client: Client) -> None:
    """Two reminders of one address and one of another for today; one is not for today."""
    with at(-360):
        run_due_jobs()  # the worker starts, and makes the schedule
        for email, minutes in (("ada", 120), ("ada", 75), ("bob", 90), ("bob", 60 * 30)):
            form = {"text": f"in {minutes}", "email": f"{email}@example.com", "minutes": minutes}
            client.post("/reminders/", form)


@pytest.mark.usefixtures("agenda")
def test_each_address_gets_one_mail_in_the_morning() -> None:
    with at_seven(2):
        run_due_jobs()

    assert [(m.to, m.body) for m in mail.outbox if m.subject == "Today"] == [
        (["ada@example.com"], "07:15 in 75\n08:00 in 120"),
        (["bob@example.com"], "07:30 in 90"),
    ]


@pytest.mark.usefixtures("agenda")
def test_a_mail_that_was_sent_is_not_sent_again_with_one_that_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_for_bob(*args: Any) -> int:
        if args[3] == ["bob@example.com"]:
            raise OSError("the server of mails is away")
        return send_mail(*args)

    with at_seven(2):
        monkeypatch.setattr(jobs, "send_mail", fail_for_bob)
        run_due_jobs()
        monkeypatch.undo()
        run_job(Job.objects.get(job_type__name__endswith="send_agenda"))

    assert [m.to for m in mail.outbox if m.subject == "Today"] == [
        ["ada@example.com"],
        ["bob@example.com"],
    ]
