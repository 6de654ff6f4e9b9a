"""The log of flows."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.models.base import JsonField, Row, RowKey, RowManager


class LogEntry(Row):
    """What a node read and wrote, an error, or what was logged by `flow.log`."""

    instance = models.CharField(_("instance"), max_length=100, default="default")
    node = RowKey(
        "hipq_flow.Node", models.CASCADE, verbose_name=_("node"), related_name="log_entries",
        null=True, db_index=False, db_constraint=False,
    )  # fmt: skip
    entry = JsonField(_("entry"))
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects: ClassVar[RowManager[Self]] = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("log entry")
        verbose_name_plural = _("log entries")
        indexes: ClassVar = [models.Index(fields=["node", "id"], name="hipq_flow_log_node")]

    def __str__(self) -> str:
        return f"log entry {self.pk}"
