"""What became of a schedule's due times: the last ones as lines, a fortnight as dots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _, ngettext

from hipq_django.admin.display import badge, format_number, local_text, when
from hipq_django.admin.job_panel import standing
from hipq_django.domain.states import NONE
from hipq_django.models import Job, Schedule, ScheduleRun

LINES, DOTS, FORTNIGHT = 20, 100, timedelta(days=14)

Link = Callable[[type[Job], object, object], str]
"""Returns a link to the page of a row, with a text."""


def last_of(schedules: Sequence[Schedule]) -> dict[int, Any]:
    """Return the last run of each schedule, with its job: two queries for all of them."""
    if not schedules:
        return {}
    using = schedules[0].using
    runs = ScheduleRun.objects.using(using)
    last = runs.filter(schedule=OuterRef("pk")).order_by("-due_time", "-pk").values("pk")[:1]
    rows = Schedule.objects.using(using).filter(pk__in=[row.pk for row in schedules])
    found = _with_jobs(runs.filter(pk__in=rows.values_list(Subquery(last))), using)
    return {run.schedule_id: run for run in found}


def history(schedule: Schedule, now: datetime, link: Link) -> str:
    """Return the dots of the last two weeks, and the last twenty lines."""
    found = _with_jobs(schedule.runs.order_by("-due_time", "-pk")[:DOTS], schedule.using)
    recent = [run for run in found if run.due_time > now - FORTNIGHT]
    lines = ((line(run, now, link),) for run in found[:LINES])
    return format_html(
        "{}{}",
        _dots(recent[::-1], link),
        format_html_join("", "<div>{}</div>", lines) or "-",
    )


def _with_jobs(runs: QuerySet[ScheduleRun], using: str) -> list[Any]:
    """Return the runs, each with the `job` that was made of it, if there is one still.

    The id that a skipped run has is that of the job that was in its way.
    """
    jobs = Job.objects.using(using).only("state", "outcome", "worker", "has_pending_answer")
    rows: list[Any] = list(runs)
    found = jobs.in_bulk([run.job_id for run in rows if run.job_id])
    for run in rows:
        run.job = None if run.kind == ScheduleRun.Kind.SKIPPED else found.get(run.job_id)
    return rows


def line(run: Any, now: datetime, link: Link) -> str:
    """Return a due time, what became of it, and how its job stands."""
    reason = "" if run.reason == NONE else run.reason
    many = ""
    if run.count > 1:
        text = ngettext("(%(count)s time)", "(%(count)s times)", run.count)
        many = f" {text % {'count': format_number(run.count)}}"
    moment = when(run.due_time, now)
    name = _("job %(id)s") % {"id": run.job_id}
    said = [
        format_html("{} {}{}", moment, run.get_kind_display(), many),
        link(Job, run.job_id, name) if run.job_id else "",
        badge(*standing(run.job)) if run.job else "",
        reason,
    ]
    return format_html_join(" ", "{}", ((part,) for part in said if part))


def _dots(runs: Sequence[Any], link: Link) -> str:
    """Return a dot for each due time, oldest first; its text says all that its colour says."""
    if not runs:
        return ""
    dots = ((_dot(run, link),) for run in runs)
    return format_html('<div class="hipq-dots">{}</div>', format_html_join(" ", "{}", dots))


def _dot(run: Any, link: Link) -> str:
    text, tone = standing(run.job) if run.job else (run.get_kind_display(), "cancelled")
    said = f"{local_text(run.due_time)}: {text}"
    dot = format_html(
        '<span class="hipq-dot hipq-{}" role="img" title="{}" aria-label="{}"></span>',
        tone, said, said,
    )  # fmt: skip
    return link(Job, run.job.pk, dot) if run.job else dot
