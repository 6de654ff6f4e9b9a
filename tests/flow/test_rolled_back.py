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
    "outputs": {"out": "one.out"},
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
    "is_idle": lambda node: node.is_idle(),
    "is_terminated": lambda node: node.is_terminated(),
    "explain": flow.explain,
    "aliases": lambda node: list(node.aliases),
    "aliases.add": lambda node: node.aliases.add("other"),
    "aliases.remove": lambda node: node.aliases.remove("bank"),
    "state": lambda node: node.state.all(),
    "state.set": lambda node: node.state.set(seen=1),
    "state.unset": lambda node: node.state.unset("seen"),
    "state.change": lambda node: node.state.change(lambda values: values),
    "inputs": lambda node: list(node.inputs),
    "outputs": lambda node: list(node.outputs),
    "input": lambda node: node.inputs["number"],
    "set_ports": lambda node: node.set_ports(inputs={"other": {}}),
    "run": lambda node: node.run(),
    "run the parent": lambda node: node.run(parent=True),
    "run by force": lambda node: node.run(force=True),
    "terminate": lambda node: node.terminate(),
    "terminate all": lambda node: node.terminate(recursive=True),
    "terminate by force": lambda node: node.terminate(delete=True, force=True),
    "delete": lambda node: node.delete(),
    "pause": lambda node: node.pause(),
    "resume": lambda node: node.resume(),
    "lock": lambda node: node.lock(5),
    "refresh_lock": lambda node: node.refresh_lock(5),
    "unlock": lambda node: node.unlock("token"),
    "spawn": lambda node: node.spawn("new", "flow.connect"),
    "start": lambda node: flow.start("flow.connect", parent=node, name="new"),
    "adopt": lambda node: node.adopt(flow.start("flow.connect", run=False), "new"),
    "is adopted": lambda node: flow.start("flow.connect", run=False).adopt(node, "new"),
    "disown": lambda node: node.disown("one"),
    "apply": lambda node: node.apply({"nodes": {}}),
    "publish": lambda node: node.publish("hello"),
    "due": testing.due,
    "run_inline": testing.run_inline,
    "run_inline if woken": lambda node: testing.run_inline(node, queue=False),
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
