"""The job that sends a reminder, queued ahead."""

from contextlib import suppress

from django.core.mail import send_mail
from django.utils import timezone

import hipq_django as hipq
from example_project.reminders.models import Reminder
from hipq_django.models import Job


def plan(reminder: Reminder) -> Job:
    """Enqueue the reminder for its time; a job that was planned for another time is replaced.

    Raise `hipq.DuplicateJobKeyError` where the reminder is being sent this very moment.
    """
    return send_reminder.enqueue(
        {"reminder": reminder.pk},
        job_key=reminder.key,
        scheduled_run_time=reminder.remind_time,
        on_conflict="replace",
    )


def call_off(reminder: Reminder) -> None:
    """Cancel the job of the reminder, if there still is one."""
    planned = Job.objects.live().filter(job_type__name="send_reminder", job_key=reminder.key)
    for job in planned:
        with suppress(hipq.InvalidJobError):  # it has just become final
            hipq.cancel(job)


@hipq.job_type("send_reminder", queue="reminders", retry=hipq.Exponential(max_attempts=5))
def send_reminder(job: Job) -> str:
    """Send the reminder, if that is still wanted now that its time has come."""
    reminder = Reminder.objects.filter(pk=job.job_data["reminder"]).first()
    if reminder is None or reminder.is_done or reminder.sent_time:
        return "nothing to send"
    send_mail("Reminder", reminder.text, None, [reminder.email])
    reminder.sent_time = timezone.now()
    reminder.save(update_fields=["sent_time"])
    return "sent"
