"""Every night one job for each account: ordered at midnight, run from a minute past it."""

from datetime import date

from django.db import transaction

import hipq_django as hipq
from example_project.analytics.models import Account, Report
from example_project.analytics.nights import END, START, ZONE_NAME, day_before, night_of, start_of
from example_project.events.models import Event
from hipq_django.models import Job


def enqueue_reports(night: date) -> list[Job]:
    """Enqueue the reports of a night that were not ordered before; return their jobs.

    A job's key is free again once the job is final, so what was ordered stands in the table of
    reports. Its constraint also stops a second command that runs at the same moment.
    """
    with transaction.atomic():
        reports = Report.objects.bulk_create(
            Report(account=account, night=night)
            for account in Account.objects.exclude(report__night=night)
        )
        return hipq.enqueue_many(
            hipq.NewJob(
                "nightly_report",
                {"report": report.pk},
                job_key=report.key,
                scheduled_run_time=start_of(night),
            )
            for report in reports
        )


@hipq.task(schedule=hipq.Cron("0 0 * * *", zone=ZONE_NAME))
def order_reports(*, job: Job = hipq.JOB) -> int:
    """Order the reports of the night that begins, as `manage.py nightly_analytics` does."""
    assert job.due_time is not None  # noqa: S101 - a schedule made the job
    return len(enqueue_reports(night_of(job.due_time)))


# A report that is not made by the end of the window waits for the next night.
@hipq.job_type(
    "nightly_report",
    queue="analytics",
    time_windows=[hipq.TimeWindow(START, END)],
    time_zone=ZONE_NAME,
    retry=hipq.Exponential(max_attempts=5),
)
def nightly_report(job: Job) -> dict[str, int]:
    """Count the events of the account on the day before."""
    report = Report.objects.select_related("account").get(pk=job.job_data["report"])
    begin, end = day_before(report.night)
    events = Event.objects.filter(account=report.account.name, create_time__gte=begin)
    report.events = events.filter(create_time__lt=end).count()
    report.is_ready = True
    report.save(update_fields=["events", "is_ready"])
    return {"events": report.events}
