"""Nodes and ports as JSON, without what came of messages for who may not view these."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q

from hipq_django.domain.states import NONE
from hipq_django.domain.tokens import MASK
from hipq_django.flow.declared_ports import ANY
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.ports import Port, defaults_of
from hipq_django.flow.values import Packet
from hipq_django.flow.web.call import Call
from hipq_django.models.masking import shown


def shown_node(call: Call) -> dict[str, Any]:
    """Return all that is said of a node."""
    node, info, tells = call.node, call.node.info, call.sees_messages
    return {
        "node": node.pk,
        "status": node.status,
        **info,
        "args": readable(call, info["args"]),
        "aliases": list(node.aliases),
        "parent": node.parent_id,
        "name": node.name,
        "children": {name: child.pk for name, child in node.children.items()},
        "paused": node.paused,
        "error": node.error if tells or node.error == NONE else MASK,
        "state": shown_state(call),
        **shown_ports(node, tells=tells),
    }


def shown_state(call: Call) -> dict[str, Any]:
    """Return the state of a node, into which messages may have come."""
    state = call.node.state.all()
    return state if call.sees_messages else dict.fromkeys(state, MASK)


def shown_ports(node: Node, *, tells: bool) -> dict[str, dict[str, Any]]:
    """Return the ports of a node: how many messages lie there, and their defaults if it `tells`."""
    rows = NodePort.objects.using(node.using).filter(node=node.pk).exclude(name=ANY)
    queued = Count("messages", filter=Q(messages__as_default=False))
    found: list[Any] = list(rows.annotate(queued=queued).order_by("pk"))
    defaults = defaults_of([row.pk for row in found], node.using)
    sides: dict[str, dict[str, Any]] = {"in": {}, "out": {}}
    for row in found:
        port: dict[str, Any] = {"size": row.queued}
        if row.pk in defaults:
            port["default"] = defaults[row.pk].value if tells else MASK
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


def readable(call: Call, value: Any) -> Any:
    """Return JSON as this user may read it: as it is, or without sensitive values."""
    return value if call.sees_messages else shown(call.node, value)
