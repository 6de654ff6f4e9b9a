"""The rows of a list that an action is done to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest

from hipq_django.monitoring.counts import capped_count

if TYPE_CHECKING:
    from hipq_django.admin.row_actions import Verb

MAX_ROWS = 900
"""How many rows one action takes: each is a transaction of its own, and a request is short. Their
ids come back with a confirmation, and Django takes a form with at most 1,000 fields."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that an action of a list is done to."""

    ids: Sequence[int]
    """Their ids; of very many, the first."""
    rows: QuerySet[Any]
    """All rows that the list has."""
    verb: Verb
    is_across: bool
    """Whether all rows of the list were selected, not single ones."""

    @classmethod
    def of(cls, request: HttpRequest, rows: QuerySet[Any], verb: Verb, now: datetime) -> Selection:
        """Return what was selected; once it is confirmed, that is what the page had named."""
        is_across = request.POST.get("select_across") == "1"
        if is_across and "confirmed" not in request.POST:
            found = verb.among(rows, now) if verb.among else rows
        else:
            found = rows.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))
        ids = list(found.order_by("pk").values_list("pk", flat=True)[: MAX_ROWS + 1])
        is_in_turn = is_across and verb.among is not None
        return cls(ids[:MAX_ROWS] if is_in_turn else ids, rows, verb, is_across)

    @property
    def is_too_large(self) -> bool:
        """Whether there are too many for one request, and they cannot be taken in turn."""
        return len(self.ids) > MAX_ROWS

    def count_rest(self, now: datetime) -> int:
        """Return how many more rows of the list it is of use to, up to a bound."""
        if not (self.is_across and self.verb.among):
            return 0
        return capped_count(self.verb.among(self.rows, now).exclude(pk__in=self.ids))
