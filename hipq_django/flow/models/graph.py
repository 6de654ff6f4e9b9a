"""Graphs that are kept under a name, so that they can be started by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.redaction import Redactor
from hipq_django.models.base import JsonField, Row, RowManager
from hipq_django.models.job_type import redactor_of_all


class Graph(Row):
    """The spec of a graph that was written in the admin. One of the same name in code goes first.

    Nodes that were started by it have their own copy: a change here is none there.
    """

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=200)
    spec = JsonField(_("spec"))
    version = models.PositiveIntegerField(_("version"), default=1)
    update_time = models.DateTimeField(_("update time"), default=timezone.now)

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        id: int
        pk: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("graph")
        verbose_name_plural = _("graphs")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["instance", "name"], name="hipq_flow_graph_unique"),
        ]

    @property
    def redactor(self) -> Redactor:
        """What masks its values of the sensitive fields of all job types of its instance."""
        return redactor_of_all(self.instance, self.using).knowing(self.spec)

    def __str__(self) -> str:
        return self.name
