"""Wakes: the outbox of what nodes have to look at. Mostly empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.models.base import Row, RowKey, RowManager


class Wake(Row):
    """A node has something to look at, now or at a moment."""

    instance = models.CharField(_("instance"), max_length=100)
    # Written beside nodes that others lock; one of a deleted node is dropped.
    node = RowKey(
        "hipq_flow.Node", models.DO_NOTHING, verbose_name=_("node"), related_name="+",
        db_constraint=False, db_index=False,
    )  # fmt: skip
    due = models.DateTimeField(_("due"), null=True, help_text=_("Empty: now."))
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        node_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("wake")
        verbose_name_plural = _("wakes")
        indexes: ClassVar = [models.Index(fields=["instance", "id"], name="hipq_flow_wake_order")]

    def __str__(self) -> str:
        return f"wake of node {self.node_id}"
