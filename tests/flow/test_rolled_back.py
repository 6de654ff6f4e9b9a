"""What is left of a transaction that was rolled back means no other node, although that has its id.

SQLite gives ids of rows that were rolled back to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import pytest
from django.db import connection, transaction

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Alias, Channel, Connection, Message, Node, NodePort, Wake

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

GRAPH: dict[str, Any] = {
    "nodes": {"one": {"component": "t.double"}},
    "inputs": {"number": "one.number"},
}


class Pair(NamedTuple):
    """A node that was rolled back, and one that has its id."""

    lost: flow.Node
    stranger: flow.Node


@pytest.fixture
def pair() -> Pair:
    with transaction.atomic():
        lost = flow.start(GRAPH, alias="shop")
        transaction.set_rollback(True)
    stranger = flow.start(GRAPH, alias="bank")
    if connection.vendor == "sqlite":
        assert stranger.pk == lost.pk
    lost.pk = stranger.pk  # as it would be on SQLite
    testing.drain()
    return Pair(lost, stranger)


def everything() -> list[Any]:
    """Return all rows that flows have."""
    models = (Node, Alias, NodePort, Connection, Channel, Message, Wake)
    return [list(model.objects.order_by("pk").values()) for model in models]


def gone(node: flow.Node) -> flow.Node:
    """Return the node after its deletion."""
    node.terminate(delete=True, force=True)
    testing.drain()
    assert not node.exists()
    return node


USES: dict[str, Callable[[flow.Node], Any]] = {
    "status": lambda node: node.status,
    "info": lambda node: node.info,
    "graph": lambda node: node.graph,
    "children": lambda node: node.children,
    "child": lambda node: node.child("one"),
    "is_terminated": lambda node: node.is_terminated(),
    "explain": flow.explain,
    "aliases": lambda node: list(node.aliases),
    "aliases.add": lambda node: node.aliases.add("other"),
    "state": lambda node: node.state.all(),
    "state.set": lambda node: node.state.set(seen=1),
    "inputs": lambda node: list(node.inputs),
    "input": lambda node: node.inputs["number"],
    "set_ports": lambda node: node.set_ports(inputs={"other": {}}),
    "run": lambda node: node.run(),
    "run by force": lambda node: node.run(force=True),
    "terminate": lambda node: node.terminate(),
    "delete": lambda node: node.delete(),
    "pause": lambda node: node.pause(),
    "lock": lambda node: node.lock(5),
    "spawn": lambda node: node.spawn("new", "flow.connect"),
    "adopt": lambda node: node.adopt(flow.start("flow.connect", run=False), "new"),
    "disown": lambda node: node.disown("one"),
    "apply": lambda node: node.apply({"nodes": {}}),
    "publish": lambda node: node.publish("hello"),
}
"""What can be done with a node."""


class Wrong(list[str]):
    """What did not raise as it should, or changed something."""

    def __init__(self, error: str = "") -> None:
        self._error = error
        self._before = everything()

    def try_all(self, uses: Mapping[str, Callable[[Any], Any]], lost: Any) -> Self:
        for name, use in uses.items():
            try:
                with transaction.atomic():  # what it is to adopt goes as well
                    use(lost)
                self.append(f"{name} raises nothing")
            except flow.NodeDeletedError as error:
                if self._error not in str(error):
                    self.append(f"{name} says {error}")
            if everything() != self._before:
                self.append(f"{name} changes something")
        return self


def test_a_node_that_was_rolled_back_is_no_other_one(pair: Pair) -> None:
    assert Wrong("was rolled back").try_all(USES, pair.lost) == []
    assert not pair.lost.exists()


def test_a_node_that_was_deleted_says_so(pair: Pair) -> None:
    node = gone(pair.stranger)

    assert Wrong().try_all(USES, node) == []
