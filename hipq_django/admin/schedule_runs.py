"""What became of a schedule's due times: the last ones as lines, a fortnight as dots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _, ngettext

from hipq_django.admin.display import format_number, when
from hipq_django.admin.job_panel import standing
from hipq_django.domain.states import NONE
from hipq_django.models import Job, Schedule, ScheduleRun

LINES, DOTS, FORTNIGHT = 20, 100, timedelta(days=14)

Link = Callable[[type[Job], object, object], str]
"""Returns a link to the page of a row, with a text."""


def last_line(schedule: Schedule, now: datetime, link: Link) -> str:
    """Return the last due time and what became of it."""
    run = schedule.runs.order_by("-due_time", "-pk").first()
    return "-" if run is None else _line(run, now, link)


def history(schedule: Schedule, now: datetime, link: Link) -> str:
    """Return the dots of the last two weeks, and the last twenty lines."""
    runs = schedule.runs.order_by("-due_time", "-pk")
    lines = ((_line(run, now, link),) for run in runs[:LINES])
    recent = list(runs.filter(due_time__gt=now - FORTNIGHT)[:DOTS])
    return format_html(
        "{}{}",
        _dots(recent[::-1], link),
        format_html_join("", "<div>{}</div>", lines) or "-",
    )


def _line(run: ScheduleRun, now: datetime, link: Link) -> str:
    job = link(Job, run.job_id, _("job %(id)s") % {"id": run.job_id}) if run.job_id else ""
    reason = "" if run.reason == NONE else run.reason
    many = ""
    if run.count > 1:
        text = ngettext("(%(count)s time)", "(%(count)s times)", run.count)
        many = f" {text % {'count': format_number(run.count)}}"
    moment = when(run.due_time, now)
    return format_html("{} {}{} {} {}", moment, run.get_kind_display(), many, job, reason)


def _dots(runs: list[ScheduleRun], link: Link) -> str:
    """Return a dot for each due time, oldest first; its text says all that its colour says."""
    if not runs:
        return ""
    found = Job.objects.using(runs[0].using).filter(pk__in=[run.job_id for run in runs])
    jobs = found.select_related("job_type", "queue").in_bulk()
    dots = ((_dot(run, jobs.get(run.job_id or 0), link),) for run in runs)
    return format_html('<div class="hipq-dots">{}</div>', format_html_join(" ", "{}", dots))


def _dot(run: ScheduleRun, job: Job | None, link: Link) -> str:
    became, tone = (run.get_kind_display(), "cancelled") if job is None else standing(job)
    said = f"{timezone.localtime(run.due_time):%Y-%m-%d %H:%M:%S %Z}: {became}"
    dot = format_html(
        '<span class="hipq-dot hipq-{}" role="img" title="{}" aria-label="{}"></span>',
        tone, said, said,
    )  # fmt: skip
    return dot if job is None else link(Job, job.pk, dot)
