"""What requests do: each function reads its call, does a verb of flows, and returns the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipq_django import flow
from hipq_django.domain.redaction import without_masks
from hipq_django.flow.declared_ports import is_own_channel
from hipq_django.flow.graphs.applying import apply
from hipq_django.flow.graphs.publicity import check_channels, permissions_of, refuse_private
from hipq_django.flow.lifecycle import locked_node
from hipq_django.flow.web.call import Call
from hipq_django.flow.web.endpoints import (
    ANYTHING,
    FLAG,
    LIST,
    MOMENT,
    NODE,
    NODE_ROUTE,
    NUMBER,
    OBJECT,
    PORT_ROUTE,
    RUN,
    TEXT,
    TEXT_OR_OBJECT,
    Endpoint,
    required,
    shown_path,
)
from hipq_django.flow.web.refusals import RefusedCallError
from hipq_django.flow.web.showing import (
    first_packets,
    readable,
    shown_node,
    shown_packet,
    shown_ports,
    shown_state,
)

FEW, MOST = 10, 100
"""How many messages are shown: if nothing else is said, and at most."""

Answer = dict[str, Any]


def index(call: Call) -> Answer:
    """Tell what there is."""
    return {
        "instance": call.instance,
        "endpoints": [
            {"method": each.method, "path": shown_path(each.route), "permission": each.permission}
            for each in ENDPOINTS
        ],
    }


# Channels


def publish(call: Call) -> Answer:
    """Publish a message on a channel."""
    if is_own_channel(call.fields["channel"]):
        raise RefusedCallError(422, "channel: below /flow only flows themselves publish.")
    flow.publish(call.fields["channel"], call.fields["message"], instance=call.instance)
    return {}


def log(call: Call) -> Answer:
    """Log a text or an object, and who said it."""
    entry = call.fields["entry"]
    said = {"message": entry} if isinstance(entry, str) else entry
    flow.log({**said, "by": call.by}, instance=call.instance)
    return {}


# Nodes


def components(call: Call) -> Answer:
    """Tell which components may be started."""
    declared = flow.components(instance=call.instance)
    return {"components": [component for component in declared if component["public"]]}


def start(call: Call) -> Answer:
    """Start a node of a public component, or the nodes of a spec."""
    options = dict(call.fields)
    beside = {"by": call.by, "data": options.pop("data", None), "at": options.pop("at", None)}
    without_masks(options)
    component = options.pop("component")
    _check_component(call, component)
    _check_options(call)
    if "parent" in options:
        options["parent"] = call.named("parent")
        call.needs_family_of(options["parent"])
    return {"node": flow.start(component, instance=call.instance, **options, **beside).pk}


def _check_component(call: Call, component: Any) -> None:
    if isinstance(component, dict):
        call.needs("edit_graph", *permissions_of(component).values())
    refuse_private(call.instance, component)


def _check_options(call: Call) -> None:
    """Refuse ports of one node whose channels the user may not use."""
    given = {side: call.fields.get(side) for side in ("inputs", "outputs")}
    call.needs(*permissions_of({"nodes": {"": given}}).values())
    if problems := list(check_channels("", given)):
        raise flow.GraphError(problems)


def node(call: Call) -> Answer:
    """Tell all of a node."""
    return shown_node(call)


def delete(call: Call) -> Answer:
    """Delete a tree that is terminated."""
    if not call.node.delete():
        reason = f"{call.node} is not terminated, or a node below it; terminate it first."
        raise RefusedCallError(409, reason, deleted=False)
    return {"deleted": True}


def state(call: Call) -> Answer:
    """Set and remove values of the state; none beside a sensitive one, which they could guess."""
    new, gone = without_masks(call.fields.get("set", {})), call.fields.get("unset", [])
    for key in gone:
        if not isinstance(key, str):
            raise RefusedCallError(422, f"unset: {key!r:.100} is no key of the state; give a text.")
    stored = locked_node(call.node).state.all()
    stays = {key: value for key, value in stored.items() if key not in new and key not in gone}
    if readable(call, stays) != stays:
        said = "the state has sensitive values; set or unset them, too, or get view_message."
        raise RefusedCallError(422, said)
    call.node.state.set(new)
    call.node.state.unset(*gone)
    return {"state": shown_state(call)}


def ports(call: Call) -> Answer:
    """Give a node the ports of its component and these."""
    given = without_masks(call.fields)
    _check_options(call)
    call.node.set_ports(given.get("inputs"), given.get("outputs"))
    return shown_ports(call.node, tells=call.sees_messages)


def run(call: Call) -> Answer:
    """Let a node run, or its parent; tell which one will."""
    return {"node": run_node(call.node, call.fields)}


def run_node(node: flow.Node, how: Mapping[str, Any]) -> int | None:
    """Let a node run as a body says; return the id of the node that will, or None."""
    found = node.run(**how)
    return None if found is None else found.pk


def terminate(call: Call) -> Answer:
    """Let a node shut down."""
    call.node.terminate(**call.fields)
    return {"status": call.node.status}


def lock(call: Call) -> Answer:
    """Keep a node from running; whoever comes too early asks again, and holds no thread here."""
    token = call.node.lock(call.fields["ttl"], retries=1)
    if token is None:
        raise RefusedCallError(409, f"{call.node} is running, or locked; try again.")
    return {"token": token}


def refresh_lock(call: Call) -> Answer:
    """Let a lock last longer."""
    if not call.node.refresh_lock(call.fields["ttl"]):
        raise RefusedCallError(409, f"{call.node} is not locked any more; lock it anew.")
    return {"refreshed": True}


def unlock(call: Call) -> Answer:
    """Give a lock back."""
    if not call.node.unlock(call.fields["token"]):
        raise RefusedCallError(409, f"{call.node} is not locked with this token.")
    return {"unlocked": True}


def adopt(call: Call) -> Answer:
    """Take a node without parent as a child."""
    call.needs_family_of(call.node)
    call.node.adopt(call.named("child"), call.fields["name"])
    return _family(call)


def disown(call: Call) -> Answer:
    """Let a child go."""
    call.needs_family_of(call.node)
    call.node.disown(call.fields["name"])
    return _family(call)


def _family(call: Call) -> Answer:
    return {"children": {name: child.pk for name, child in call.node.children.items()}}


# Graphs


def graph(call: Call) -> Answer:
    """Tell the spec of a graph."""
    spec = call.node.graph
    if spec is None:
        raise RefusedCallError(404, f"{call.node} is no graph.")
    return {"spec": readable(call, spec)}


def edit_graph(call: Call) -> Answer:
    """Let a graph be as a new spec says."""
    spec = without_masks(call.fields["spec"])
    call.needs(*permissions_of(spec, call.node.graph).values())
    apply(call.node, spec, only_public=True)
    return _family(call)


# Ports


def read(call: Call) -> Answer:
    """Take the oldest message of a port, or its default; nothing if there is neither."""
    packet = call.port.packet()
    return {} if packet is None else shown_packet(packet)


def entries(call: Call) -> Answer:
    """Tell the oldest messages of a port, which stay there."""
    count = call.fields.get("count", FEW)
    if not (isinstance(count, int) and 1 <= count <= MOST):
        raise RefusedCallError(
            422, f"count: it is {count!r}; give a whole number from 1 to {MOST}."
        )
    if call.place["port"] not in call.ports:  # looking makes no port where `*` stands for it
        raise RefusedCallError(404, f"{call.node} has no port {call.place['port']!r:.100} yet.")
    return {
        "size": call.port.size,
        "entries": [shown_packet(packet) for packet in first_packets(call.port, count)],
    }


def write(call: Call) -> Answer:
    """Write one message, or a list of them."""
    if ("data" in call.fields) == ("list" in call.fields):
        raise RefusedCallError(
            422, "the body needs either 'data', one message, or 'list', several."
        )
    call.port.write_many(call.fields["list"] if "list" in call.fields else [call.fields["data"]])
    return {}


_START = {
    "component": required(TEXT_OR_OBJECT), "args": LIST, "parent": NODE, "name": TEXT,
    "alias": TEXT, "on_conflict": TEXT, "at": MOMENT, "inputs": OBJECT, "outputs": OBJECT,
    "data": OBJECT, "job": OBJECT, "run": FLAG,
}  # fmt: skip
_MESSAGE = {"channel": required(TEXT), "message": required(ANYTHING)}
_TTL = {"ttl": required(NUMBER)}
_NAME = {"name": required(TEXT)}
_CHILD = {"child": required(NODE), **_NAME}
_SPEC = {"spec": required(OBJECT)}
_EXTENT = {"recursive": FLAG, "delete": FLAG, "force": FLAG}

ENDPOINTS = (
    Endpoint("GET", "", "view_node", index),
    Endpoint("POST", "publish", "write_port", publish, _MESSAGE),
    Endpoint("POST", "log", "write_port", log, {"entry": required(TEXT_OR_OBJECT)}),
    Endpoint("GET", "components", "view_node", components),
    Endpoint("POST", "nodes", "start_node", start, _START),
    Endpoint("GET", NODE_ROUTE, "view_node", node),
    Endpoint("DELETE", NODE_ROUTE, "terminate_node", delete),
    Endpoint("POST", f"{NODE_ROUTE}/state", "edit_node", state, {"set": OBJECT, "unset": LIST}),
    Endpoint(
        "POST", f"{NODE_ROUTE}/ports", "edit_node", ports, {"inputs": OBJECT, "outputs": OBJECT}
    ),
    Endpoint("POST", f"{PORT_ROUTE}/read", "read_port", read),
    Endpoint("POST", f"{PORT_ROUTE}/entries", "view_message", entries, {"count": NUMBER}),
    Endpoint("POST", f"{PORT_ROUTE}/write", "write_port", write, {"data": ANYTHING, "list": LIST}),
    Endpoint("POST", f"{NODE_ROUTE}/run", "run_node", run, RUN),
    Endpoint(
        "POST", f"{NODE_ROUTE}/terminate", "terminate_node", terminate, _EXTENT, locks_tree=True
    ),
    Endpoint("POST", f"{NODE_ROUTE}/lock", "edit_node", lock, _TTL),
    Endpoint("POST", f"{NODE_ROUTE}/refresh_lock", "edit_node", refresh_lock, _TTL),
    Endpoint("POST", f"{NODE_ROUTE}/unlock", "edit_node", unlock, {"token": required(TEXT)}),
    Endpoint("POST", f"{NODE_ROUTE}/adopt", "edit_node", adopt, _CHILD, locks_tree=True),
    Endpoint("POST", f"{NODE_ROUTE}/disown", "edit_node", disown, _NAME, locks_tree=True),
    Endpoint("GET", f"{NODE_ROUTE}/graph", "view_node", graph),
    Endpoint("POST", f"{NODE_ROUTE}/graph", "edit_graph", edit_graph, _SPEC, locks_tree=True),
)
