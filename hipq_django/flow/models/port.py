"""Ports, what joins them, and the messages that lie on them.

The foreign keys of hot tables have no constraint: it would lock a row of the other table for each
row that is inserted. Who inserts locks the other row anyway, once a statement, and who deletes
locks all that it deletes, so that nothing is left of what is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.redaction import Redactor
from hipq_django.flow.values import PortName
from hipq_django.models.base import JsonField, Row, RowKey, RowManager

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from hipq_django.flow.models.node import Node

DIRECTIONS = {"in": _("in"), "out": _("out")}
MODES = {"queue": _("queue"), "memory": _("memory")}


class PortQuerySet(models.QuerySet["NodePort"]):
    """The questions that are asked about ports."""

    def of_node(self, node: Node) -> PortQuerySet:
        """The ports of a node, and of no other one that has its id; see `NodeQuerySet.row_of`."""
        return self.filter(node=node.pk, node__create_time=node.create_time)


class NodePort(Row):
    """A port of a node. The one named `*` stands for all that are not there yet."""

    node = RowKey(
        "hipq_flow.Node", models.CASCADE, verbose_name=_("node"), related_name="ports",
        db_index=False, db_constraint=False,
    )  # fmt: skip
    direction = models.CharField(_("direction"), max_length=3, choices=list(DIRECTIONS.items()))
    name = models.CharField(_("name"), max_length=200)
    mode = models.CharField(_("mode"), max_length=6, choices=list(MODES.items()), default="queue")
    type = models.CharField(_("type"), max_length=10, default="", blank=True)
    # The others were given when the node was started, or stand for a `*`.
    declared = models.BooleanField(_("declared"), default=False)
    has_default = models.BooleanField(_("has a default"), default=False)
    value = JsonField(_("default"), default=dict, blank=True)
    value_context = JsonField(_("context of the default"), default=dict, blank=True)
    meta = JsonField(_("meta"), default=dict, blank=True)

    objects = RowManager.from_queryset(PortQuerySet)()

    if TYPE_CHECKING:
        id: int
        pk: int
        node_id: int
        messages: RelatedManager[Message]
        channel_rows: RelatedManager[Channel]
        outgoing: RelatedManager[Connection]

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("port")
        verbose_name_plural = _("ports")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["node", "direction", "name"], name="hipq_flow_port_unique"
            ),
            models.CheckConstraint(
                condition=Q(direction__in=["in", "out"]) & Q(mode__in=["queue", "memory"]),
                name="hipq_flow_port_values",
            ),
        ]
        permissions: ClassVar = [
            ("read_port", "Can take messages from ports"),
            ("write_port", "Can write messages to ports, and publish"),
        ]

    @property
    def redactor(self) -> Redactor:
        """What masks its messages: by its name it may be a sensitive field."""
        return replace(self.node.redactor, key=self.name)

    def __str__(self) -> str:
        return f"{self.direction}:{self.name}"

    @property
    def place(self) -> PortName:
        """Which port it is."""
        return PortName(self.node_id, self.direction, self.name)


class Connection(Row):
    """What is written to the source is delivered to the target, for good."""

    source = RowKey(
        NodePort, models.CASCADE, verbose_name=_("source"), related_name="outgoing",
        db_index=False, db_constraint=False,
    )  # fmt: skip
    target = RowKey(
        NodePort, models.CASCADE, verbose_name=_("target"), related_name="incoming",
        db_constraint=False,
    )  # fmt: skip

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        source_id: int
        target_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("connection")
        verbose_name_plural = _("connections")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["source", "target"], name="hipq_flow_connection_unique"
            ),
            models.CheckConstraint(
                condition=~Q(source=F("target")), name="hipq_flow_connection_elsewhere"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.source_id} to {self.target_id}"


class Channel(Row):
    """An in-port that subscribes to a channel, or an out-port that publishes to it."""

    port = RowKey(
        NodePort, models.CASCADE, verbose_name=_("port"), related_name="channel_rows",
        db_index=False,
    )  # fmt: skip
    name = models.CharField(_("name"), max_length=255)

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        port_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("channel")
        verbose_name_plural = _("channels")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["port", "name"], name="hipq_flow_channel_unique"),
        ]
        indexes: ClassVar = [models.Index(fields=["name", "port"], name="hipq_flow_channel_name")]

    def __str__(self) -> str:
        return self.name


class Message(Row):
    """A value on a port. They are read in the order of their ids, and deleted by their ids."""

    port = RowKey(
        NodePort, models.CASCADE, verbose_name=_("port"), related_name="messages",
        db_index=False, db_constraint=False,
    )  # fmt: skip
    data = JsonField(_("data"))
    context = JsonField(_("context"), default=dict)
    as_default = models.BooleanField(_("as default"), default=False)
    log = models.BooleanField(_("log"), default=True)
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects: ClassVar[RowManager[Self]] = RowManager()

    if TYPE_CHECKING:
        id: int
        pk: int
        port_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        indexes: ClassVar = [
            models.Index(fields=["port", "id"], name="hipq_flow_message_order"),
            models.Index(
                fields=["port", "id"],
                condition=Q(as_default=True),
                name="hipq_flow_message_default",
            ),
        ]

    def __str__(self) -> str:
        return f"message {self.pk}"
