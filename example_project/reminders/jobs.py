"""The job that sends a reminder, queued ahead, and a list of them each morning."""

from contextlib import suppress
from datetime import timedelta

from django.core.mail import send_mail
from django.utils import timezone
from django.utils.timezone import localtime

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


@hipq.task(
    schedule=hipq.Cron("0 7 * * *"), queue="reminders", retry=hipq.Exponential(max_attempts=5)
)
def send_agenda(*, job: Job = hipq.JOB) -> int:
    """Tell each address in the morning what it will be reminded of; return how many mails.

    A step for each mail: if one cannot be sent, those before it are not sent again with it.
    """
    assert job.due_time is not None  # noqa: S101 - a schedule made the job
    agenda: dict[str, list[str]] = {}
    wanted = Reminder.objects.filter(is_done=False, sent_time=None, remind_time__gte=job.due_time)
    for reminder in wanted.filter(remind_time__lt=job.due_time + timedelta(days=1)):
        line = f"{localtime(reminder.remind_time):%H:%M} {reminder.text}"
        agenda.setdefault(reminder.email, []).append(line)
    for email, lines in agenda.items():
        job.step(f"mail {email:.190}", send_mail, "Today", "\n".join(lines), None, [email])
    return len(agenda)
