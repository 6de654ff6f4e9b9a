"""When a schedule is due, as it is shown: in words, and the next times with what moves them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.admin.display import badge, span
from hipq_django.domain.schedules import SHARED, Cron, Every
from hipq_django.exceptions import HipqError
from hipq_django.models import Schedule

TIMES = ("cron", "every_seconds", "time_zone", *SHARED)
"""What says when a schedule is due, and how."""

UPCOMING = 5

CLOCK_CHANGES = {
    "skipped": gettext_lazy("moved: the clocks skip its hour"),
    "repeated": gettext_lazy("first pass: the clocks repeat this hour"),
}


def of_row(row: Schedule, show: Callable[[Cron | Every], str]) -> str:
    """Return what is made of the times of a row, which may be such as cannot be read."""
    try:
        return show(row.spec)
    except HipqError as error:
        return str(error)


def written(spec: Cron | Every) -> str:
    """Return the times as they are written, and in words; those of a text with their zone."""
    if isinstance(spec, Every):
        return _("every %(span)s") % {"span": span(timedelta(seconds=spec.every_seconds))}
    words = f"{spec.explanation} ({spec.tz})"
    return format_html(
        '<code>{}</code> <span class="hipq-words" lang="en">{}</span>', spec.text, words
    )


def upcoming(spec: Cron | Every, now: datetime) -> str:
    """Return the next five times, in the zone of the schedule and in UTC."""
    lines = (_line(spec, at) for at in spec.upcoming(now, UPCOMING))
    return format_html_join("", "<div>{} ({}) {}</div>", lines) or _("never")


def _line(spec: Cron | Every, at: datetime) -> tuple[str, str, str]:
    change = CLOCK_CHANGES.get(spec.clock_change(at))
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"{at:%Y-%m-%d %H:%M:%S %Z}", utc, badge(str(change), "retry") if change else ""
