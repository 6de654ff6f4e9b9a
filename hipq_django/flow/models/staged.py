"""The jobs that stages have enqueued, and not handed on yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.models.base import JsonField, Row, RowKey, RowManager


class StagedJob(Row):
    """A message that a stage has made a job of, until the end of that job leaves the stage."""

    node = RowKey(
        "hipq_flow.Node", models.CASCADE, verbose_name=_("node"), related_name="staged",
        db_index=False, db_constraint=False,
    )  # fmt: skip
    # The job may be pruned before it is looked at.
    job_id: models.BigIntegerField[int, int] = models.BigIntegerField(_("job"), db_index=True)
    data: Any = JsonField(_("data"), default=dict)
    context: Any = JsonField(_("context"), default=dict)
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        id: int
        pk: int
        node_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("staged job")
        verbose_name_plural = _("staged jobs")
        indexes: ClassVar = [models.Index(fields=["node", "id"], name="hipq_flow_staged_node")]

    def __str__(self) -> str:
        return f"job {self.job_id} of node {self.node_id}"
