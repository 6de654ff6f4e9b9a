"""Values that may be large, where several are shown: read only as far as they are shown."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, F, JSONField, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Length
from django.utils.html import format_html
from django.utils.translation import gettext as _

from hipq_django.admin.display import format_number

MAX_READ_CHARS = 65_536
"""What is larger is not even read for a preview: to mask it, all of it would be needed."""


def with_preview(rows: QuerySet[Any], column: str) -> QuerySet[Any]:
    """Return rows with `size`, the characters of a JSON column, and `shown`: it, unless large."""
    small, null = When(size__lte=MAX_READ_CHARS, then=F(column)), Value(None, JSONField())
    sized = rows.defer(column).annotate(size=chars_of(column))
    found: QuerySet[Any] = sized.annotate(shown=Case(small, default=null, output_field=JSONField()))
    return found


def chars_of(column: str) -> Length:
    """Return how many characters of a JSON column are stored."""
    return Length(Cast(column, TextField()))


def too_large(size: int) -> str:
    """Return what is shown in place of a value of which so many characters are stored."""
    text = _("%(count)s characters, too many for a preview") % {"count": format_number(size)}
    return format_html('<span class="hipq-age">{}</span>', text)
