"""How values are shown. Pure; whatever a job or a partner sent is escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.translation import gettext as _, ngettext, pgettext_lazy

from hipq_django.domain.states import NONE

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

NOTHING = "-"
MAX_BLOCK_CHARS = 20_000
UNFOLDED_LINES = 25
_UNITS = (
    (pgettext_lazy("unit of time", "d"), 86_400),
    (pgettext_lazy("unit of time", "h"), 3_600),
    (pgettext_lazy("unit of time", "min"), 60),
    (pgettext_lazy("unit of time", "s"), 1),
)


_WHOLE = re.compile(r'"(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*')
"""What of the JSON of a text, which may have been cut anywhere, can be read."""


def read_head(head: str) -> str:
    """Return the text that the head of its JSON says; the JSON itself of any other value."""
    found = _WHOLE.match(head)
    if found is None:
        return head
    text: str = json.loads(f'{found[0]}"', strict=False)
    return text.encode(errors="ignore").decode()  # the cut may have halved the last character


def badge(text: str, tone: str) -> str:
    """Return a coloured label; the text says all that the colour says."""
    return format_html('<span class="hipq-badge hipq-{}">{}</span>', tone, text)


def local_text(moment: datetime) -> str:
    """Return a moment in the current time zone, as plain text."""
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def when(moment: datetime, now: datetime) -> str:
    """Return a moment in the current time zone with its age."""
    local = timezone.localtime(moment)
    return format_html(
        '<time class="hipq-time" datetime="{}">{}</time> <span class="hipq-age">{}</span>',
        local.isoformat(),
        local_text(moment),
        age(moment, now),
    )


def when_short(moment: datetime, now: datetime) -> str:
    """Return a moment's age with a date that fits into a list."""
    local = timezone.localtime(moment)
    return format_html(
        '{} <time class="hipq-age hipq-time" datetime="{}" title="{}">{}</time>',
        age(moment, now, parts=1),
        local.isoformat(),
        local_text(moment),
        f"{local:%m-%d %H:%M}",
    )


def age(moment: datetime, now: datetime, *, parts: int = 2) -> str:
    """Return how long ago, or in how long, a moment is: '3 h 20 min ago'."""
    text = _("in %(span)s") if moment > now else _("%(span)s ago")
    return text % {"span": span(abs(moment - now), parts=parts)}


def span(length: timedelta, *, parts: int = 2) -> str:
    """Return a length of time in its largest units."""
    units = list(_units(int(length.total_seconds()))) or [(0, _UNITS[-1][0])]
    return " ".join(f"{number} {unit}" for number, unit in units[:parts])


def _units(seconds: int) -> Iterator[tuple[int, _StrOrPromise]]:
    for unit, size in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            yield number, unit


def plain(number: float | Decimal) -> str:
    """Return a number without zeros that say nothing."""
    return f"{Decimal(str(number)).normalize():f}"


def format_number(number: int) -> str:
    """Return a number with the separators of the active language: '1,234'."""
    return number_format(number, force_grouping=True)


def shown(value: Any) -> str:
    """Return an edited value as the history keeps it, in English like all that is stored."""
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
        f"{name} {_size(lines, len(text))}".strip(),
        _cut(text),
    )


def _size(lines: int, chars: int) -> str:
    text = ngettext(
        "%(lines)s line, %(chars)s characters", "%(lines)s lines, %(chars)s characters", lines
    )
    return text % {"lines": format_number(lines), "chars": format_number(chars)}


def _cut(text: str) -> str:
    if len(text) <= MAX_BLOCK_CHARS:
        return text
    rest = _("… the first %(shown)s of %(chars)s characters")
    values = {"shown": format_number(MAX_BLOCK_CHARS), "chars": format_number(len(text))}
    return f"{text[:MAX_BLOCK_CHARS]}\n{rest % values}"
