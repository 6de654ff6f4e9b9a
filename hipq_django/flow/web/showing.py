"""Nodes and ports as JSON, with sensitive fields masked for who may not view messages."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q

from hipq_django.domain.redaction import Redactor
from hipq_django.flow.declared_ports import ANY
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.ports import Port, defaults_of
from hipq_django.flow.values import Packet
from hipq_django.flow.web.call import Call
from hipq_django.models.job_type import redactor_of_all


def shown_node(call: Call) -> dict[str, Any]:
    """Return all that is said of a node."""
    node, info, state = call.node, call.node.info, call.node.state.all()
    masked = masking(call).knowing(info["args"], state)  # an error may quote their values
    return {
        "node": node.pk,
        "status": node.status,
        **info,
        "args": masked.mask(info["args"]),
        "aliases": list(node.aliases),
        "parent": node.parent_id,
        "name": node.name,
        "children": {name: child.pk for name, child in node.children.items()},
        "paused": node.paused,
        "error": masked.mask(node.error),
        "state": masked.mask(state),
        **shown_ports(node, masked),
    }


def shown_ports(node: Node, masked: Redactor) -> dict[str, dict[str, Any]]:
    """Return the ports of a node: how many messages lie there, and their defaults."""
    rows = NodePort.objects.using(node.using).filter(node=node.pk).exclude(name=ANY)
    queued = Count("messages", filter=Q(messages__as_default=False))
    found: list[Any] = list(rows.annotate(queued=queued).order_by("pk"))
    defaults = defaults_of([row.pk for row in found], node.using)
    sides: dict[str, dict[str, Any]] = {"in": {}, "out": {}}
    for row in found:
        port: dict[str, Any] = {"size": row.queued}
        if row.pk in defaults:
            value = defaults[row.pk].value
            port["default"] = masked.mask_field(row.name, value)
        sides[row.direction][row.name] = port
    return {"inputs": sides["in"], "outputs": sides["out"]}


def shown_packet(packet: Packet) -> dict[str, Any]:
    """Return a message with its context; its id is 0 if it is a default."""
    return {"id": packet.id, "data": packet.value, "context": packet.context, "time": packet.time}


def first_packets(port: Port, count: int) -> list[Packet]:
    """Return the oldest messages of a port without taking them."""
    rows = Message.objects.using(port.node.using).filter(port=port.row, as_default=False)
    return [
        Packet(row.pk, row.data, row.context, row.create_time)
        for row in rows.order_by("pk")[:count]
    ]


def masking(call: Call) -> Redactor:
    """Return what masks the sensitive fields of all job types of the instance.

    Not of one tree: values go from tree to tree along connections and channels.
    """
    if call.sees_messages:
        return Redactor()
    return redactor_of_all(call.instance, call.node.using)
