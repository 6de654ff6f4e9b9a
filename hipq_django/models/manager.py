"""What all models share: their manager, and the database that a row is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models

if TYPE_CHECKING:
    from django.db.models import QuerySet


AnyRow = TypeVar("AnyRow", bound=models.Model)


class RowManager(models.Manager[AnyRow]):
    """Finds what belongs to a row in the database of that row, whatever a router says.

    `job.queue` and `queue.jobs` go through it. A router that sends reads to a replica would show
    them as they were some moments ago, or not at all.
    """

    def get_queryset(self) -> QuerySet[AnyRow]:
        """Return all rows, of the database of the row they are asked of where there is one."""
        rows = super().get_queryset()
        hints: dict[str, Any] = getattr(self, "_hints", {})
        row = hints.get("instance") or getattr(self, "instance", None)
        if self._db is None and row is not None and row._state.db:
            return rows.using(row._state.db)
        return rows


class Row(models.Model):
    """What jobs, queues, workers and answers share."""

    class Meta:
        abstract = True

    @property
    def using(self) -> str:
        """The alias of the database this row is in."""
        return self._state.db or "default"
