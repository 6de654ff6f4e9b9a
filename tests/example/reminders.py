"""Reminders: queued ahead, put off, called off."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.core import mail
from django.test import Client

from example_project.reminders.models import Reminder
from hipq_django.models import Job
from hipq_django.testing import assert_enqueued, run_due_jobs

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
