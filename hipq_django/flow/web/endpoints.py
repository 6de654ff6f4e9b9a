"""All that can be asked for: method, address, permission, what the body may say, and the verb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hipq_django.flow.web import operations
from hipq_django.flow.web.call import Call
from hipq_django.flow.web.fields import (
    ANYTHING,
    FLAG,
    LIST,
    MOMENT,
    NODE,
    NUMBER,
    OBJECT,
    RUN,
    TEXT,
    TEXT_OR_OBJECT,
    Field,
    Fields,
    required,
)


class Endpoint(NamedTuple):
    """One method of one address."""

    method: str
    route: str
    permission: str
    verb: Callable[[Call], dict[str, Any]]
    fields: Fields = {}
    locks_tree: bool = False
    """Whether its verb locks other nodes beside the one of its address."""

    @property
    def may_run(self) -> bool:
        """Whether its body may let the node of its address run afterwards."""
        names_node = self.route.startswith(NODE_ROUTE)
        return self.method == "POST" and names_node and self.fields is not RUN


def index(call: Call) -> dict[str, Any]:
    """Tell what there is."""
    return {
        "instance": call.instance,
        "endpoints": [
            {"method": each.method, "path": shown_path(each.route), "permission": each.permission}
            for each in ENDPOINTS
        ],
    }


def shown_path(route: str) -> str:
    """Return an address as people write it: /nodes/ID/inputs|outputs/PORT/read."""
    text = route
    for converter, shown in _SHOWN.items():
        text = text.replace(converter, shown)
    return f"/{text}"


NODE_ROUTE = "nodes/<str:node>"
_PORT = f"{NODE_ROUTE}/<hipq_side:side>/<str:port>"
_SHOWN = {"<str:node>": "ID", "<hipq_side:side>": "inputs|outputs", "<str:port>": "PORT"}

_START: Fields = {
    "component": required(TEXT_OR_OBJECT),
    "args": Field(LIST),
    "parent": Field(NODE),
    "name": Field(TEXT),
    "alias": Field(TEXT),
    "on_conflict": Field(TEXT),
    "at": Field(MOMENT),
    "inputs": Field(OBJECT),
    "outputs": Field(OBJECT),
    "data": Field(OBJECT),
    "job": Field(OBJECT),
    "run": Field(FLAG),
}

ENDPOINTS = (
    Endpoint("GET", "", "view_node", index),
    Endpoint(
        "POST", "publish", "write_port", operations.publish,
        {"channel": required(TEXT), "message": required(ANYTHING)},
    ),
    Endpoint("POST", "log", "write_port", operations.log, {"entry": required(TEXT_OR_OBJECT)}),
    Endpoint("GET", "components", "view_node", operations.components),
    Endpoint("POST", "nodes", "start_node", operations.start, _START),
    Endpoint("GET", NODE_ROUTE, "view_node", operations.node),
    Endpoint("DELETE", NODE_ROUTE, "terminate_node", operations.delete),
    Endpoint(
        "POST", f"{NODE_ROUTE}/state", "edit_node", operations.state,
        {"set": Field(OBJECT), "unset": Field(LIST)},
    ),
    Endpoint(
        "POST", f"{NODE_ROUTE}/ports", "edit_node", operations.ports,
        {"inputs": Field(OBJECT), "outputs": Field(OBJECT)},
    ),
    Endpoint("POST", f"{_PORT}/read", "read_port", operations.read),
    Endpoint(
        "POST", f"{_PORT}/entries", "view_message", operations.entries, {"count": Field(NUMBER)}
    ),
    Endpoint(
        "POST", f"{_PORT}/write", "write_port", operations.write,
        {"data": Field(ANYTHING), "list": Field(LIST)},
    ),
    Endpoint("POST", f"{NODE_ROUTE}/run", "run_node", operations.run, RUN),
    Endpoint(
        "POST", f"{NODE_ROUTE}/terminate", "terminate_node", operations.terminate,
        {"recursive": Field(FLAG), "delete": Field(FLAG), "force": Field(FLAG)}, locks_tree=True,
    ),
    Endpoint("POST", f"{NODE_ROUTE}/lock", "edit_node", operations.lock, {"ttl": required(NUMBER)}),
    Endpoint(
        "POST", f"{NODE_ROUTE}/refresh_lock", "edit_node", operations.refresh_lock,
        {"ttl": required(NUMBER)},
    ),
    Endpoint(
        "POST", f"{NODE_ROUTE}/unlock", "edit_node", operations.unlock, {"token": required(TEXT)}
    ),
    Endpoint(
        "POST", f"{NODE_ROUTE}/adopt", "edit_node", operations.adopt,
        {"child": required(NODE), "name": required(TEXT)}, locks_tree=True,
    ),
    Endpoint(
        "POST", f"{NODE_ROUTE}/disown", "edit_node", operations.disown, {"name": required(TEXT)},
        locks_tree=True,
    ),
    Endpoint("GET", f"{NODE_ROUTE}/graph", "view_node", operations.graph),
    Endpoint(
        "POST", f"{NODE_ROUTE}/graph", "edit_graph", operations.edit_graph,
        {"spec": required(OBJECT)},
        locks_tree=True,
    ),
)  # fmt: skip
