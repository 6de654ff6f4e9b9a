"""Messages and states as pages show them: masked before, and cut here."""

from __future__ import annotations

import json
from typing import Any

from django.utils.html import format_html
from django.utils.translation import gettext as _

from hipq_django.admin.display import NOTHING, format_number
from hipq_django.admin.previews import MAX_READ_CHARS, too_large
from hipq_django.domain.states import NONE

MAX_PREVIEW_CHARS = 2_048


def preview(value: Any, size: int) -> str:
    """Return the beginning of a masked JSON value, of which `size` characters are stored."""
    if size > MAX_READ_CHARS:
        return too_large(size)
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_PREVIEW_CHARS:
        return format_html("<code>{}</code>", text)
    more = _("… %(count)s characters more") % {
        "count": format_number(len(text) - MAX_PREVIEW_CHARS)
    }
    return format_html(
        '<code>{}</code> <span class="hipq-age">{}</span>', text[:MAX_PREVIEW_CHARS], more
    )


def whole(value: Any) -> str:
    """Return a JSON value as text to read or to edit."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def first_line(error: Any) -> str:
    """Return the first line of a node's error, '-' where it has none.

    While a run is tried again, the row also notes at which messages the code raised.
    """
    text = error.get("error", "") if isinstance(error, dict) else error
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    line = text.strip().partition("\n")[0]
    return line if line not in ("", NONE) else NOTHING
