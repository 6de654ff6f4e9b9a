"""How values are shown. Pure; whatever a job or a partner sent is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone
from django.utils.html import format_html

from hipq_django.domain.states import NONE

NOTHING = "-"
MAX_BLOCK_CHARS = 20_000
UNFOLDED_LINES = 25
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def badge(text: str, tone: str) -> str:
    """Return a coloured label; the text says all that the colour says."""
    return format_html('<span class="hipq-badge hipq-{}">{}</span>', tone, text)


def when(moment: datetime, now: datetime) -> str:
    """Return a moment in the current time zone with its age."""
    local = timezone.localtime(moment)
    return format_html(
        '<time class="hipq-time" datetime="{}">{}</time> <span class="hipq-age">{}</span>',
        local.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S %Z}",
        age(moment, now),
    )


def when_short(moment: datetime, now: datetime) -> str:
    """Return a moment's age with a date that fits into a list."""
    local = timezone.localtime(moment)
    return format_html(
        '{} <time class="hipq-age hipq-time" datetime="{}" title="{}">{}</time>',
        age(moment, now, parts=1),
        local.isoformat(),
        f"{local:%Y-%m-%d %H:%M:%S %Z}",
        f"{local:%m-%d %H:%M}",
    )


def age(moment: datetime, now: datetime, *, parts: int = 2) -> str:
    """Return how long ago, or in how long, a moment is: '3 h 20 min ago'."""
    text = span(abs(moment - now), parts=parts)
    return f"in {text}" if moment > now else f"{text} ago"


def span(length: timedelta, *, parts: int = 2) -> str:
    """Return a length of time in its largest units."""
    units = list(_units(int(length.total_seconds()))) or [(0, "s")]
    return " ".join(f"{number} {unit}" for number, unit in units[:parts])


def _units(seconds: int) -> Iterator[tuple[int, str]]:
    for unit, size in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            yield number, unit


def plain(number: float | Decimal) -> str:
    """Return a number without zeros that say nothing."""
    return f"{Decimal(str(number)).normalize():f}"


def shown(value: Any) -> str:
    """Return an edited value as the history keeps it."""
    if isinstance(value, datetime):
        return timezone.localtime(value).isoformat(sep=" ", timespec="seconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float | Decimal):
        return plain(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) if value not in (None, "", NONE) else "none"


def windows(lines: Sequence[str], zone_name: str) -> str:
    """Return time windows with the zone that they are of."""
    return f"{', '.join(lines)} {zone_name}" if lines else NOTHING


def or_dash(text: str) -> str:
    """Return text, or the sign for nothing where the database says 'NONE'."""
    return NOTHING if text in ("", NONE) else text


def block(value: Any, name: str = "") -> str:
    """Return a JSON value, or text, as a block that is folded where it is long."""
    if value in (None, NONE, "", {}, []):
        return NOTHING
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    lines = text.count("\n") + 1
    if lines <= UNFOLDED_LINES and len(text) <= MAX_BLOCK_CHARS:
        return format_html('<pre class="hipq-block">{}</pre>', text)
    return format_html(
        '<details class="hipq-folded"><summary>{}</summary>'
        '<pre class="hipq-block">{}</pre></details>',
        f"{name} {lines:,} lines, {len(text):,} characters".strip(),
        _cut(text),
    )


def _cut(text: str) -> str:
    if len(text) <= MAX_BLOCK_CHARS:
        return text
    return f"{text[:MAX_BLOCK_CHARS]}\n… the first {MAX_BLOCK_CHARS:,} of {len(text):,} characters"
