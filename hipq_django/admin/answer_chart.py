"""Answers by day and status, as bars; counted in the newest rows only, however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import TruncDate
from django.utils import timezone

from hipq_django.admin.answer_values import name_of
from hipq_django.admin.display import format_number
from hipq_django.models import Answer
from hipq_django.monitoring.counts import COUNT_LIMIT

DAYS = 14
STEP, BAR_WIDTH, HEIGHT = 50, 34, 100
"""The measures of the drawing, in its own units."""

Counts = Counter[tuple[date, str]]


@dataclass(frozen=True, slots=True)
class Bar:
    """The answers of one day and status: a rectangle, and what to say of it."""

    status: str
    text: str
    x: int
    y: float
    height: float


def chart(using: str, now: datetime) -> dict[str, Any]:
    """Return what the template draws of the last 14 days; `days` is empty where nothing came."""
    today = timezone.localtime(now).date()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    counts, is_capped = _counts(using, days[0])
    statuses = [status for status in Answer.Status if any((d, status) in counts for d in days)]
    return {
        "days": days if statuses else [],
        "zone": timezone.get_current_timezone_name(),
        "width": STEP * DAYS,
        "height": HEIGHT,
        "bar_width": BAR_WIDTH,
        "labels": [(STEP * i + BAR_WIDTH // 2, f"{day:%m-%d}") for i, day in enumerate(days)],
        "bars": list(bars(counts, days, statuses)),
        "statuses": [(s.value, name_of(s), sum(counts[day, s] for day in days)) for s in statuses],
        "table": [(day.isoformat(), [counts[day, s] for s in statuses]) for day in reversed(days)],
        "limit": COUNT_LIMIT if is_capped else 0,
    }


def bars(counts: Counts, days: Sequence[date], statuses: Sequence[str]) -> Iterator[Bar]:
    """Yield the rectangles of each day, one standing on the other."""
    highest = max([sum(counts[day, status] for status in statuses) for day in days], default=0)
    for index, day in enumerate(days):
        top = float(HEIGHT)
        for status in statuses:
            number = counts[day, status]
            if not number:
                continue
            height = round(HEIGHT * number / highest, 2)
            top = round(top - height, 2)
            text = f"{day}: {format_number(number)} {name_of(status)}"
            yield Bar(status, text, STEP * index, top, height)


def _counts(using: str, first: date) -> tuple[Counts, bool]:
    """Count accepted answers and the others apart, so that many of one do not hide the other.

    Also return whether there may be more answers from `first` on than were counted.
    """
    answers = Answer.objects.using(using)
    newest = _by_day(answers.all())
    others = _by_day(answers.exclude(status=Answer.Status.ACCEPTED))
    accepted = {k: n for k, n in newest.items() if k[1] == Answer.Status.ACCEPTED}
    return Counter(accepted) + others, _is_cut(newest, first) or _is_cut(others, first)


def _by_day(answers: QuerySet[Any]) -> Counts:
    """Count here: with the bound in a subquery, PostgreSQL reads the whole table to join it."""
    newest = answers.order_by("-pk").annotate(day=TruncDate("receive_time"))
    return Counter(newest.values_list("day", "status")[:COUNT_LIMIT])


def _is_cut(counts: Counts, first: date) -> bool:
    return counts.total() >= COUNT_LIMIT and min(day for day, _ in counts) >= first
