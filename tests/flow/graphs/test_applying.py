"""What a changed spec changes, and what it leaves alone."""

import json
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Connection, Node, NodePort

pytestmark = pytest.mark.django_db

TWICE: dict[str, Any] = {
    "nodes": {"one": {"component": "t.double"}, "two": {"component": "t.double"}},
    "edges": ["one.out -> two.number"],
    "inputs": {"number": "one.number"},
    "outputs": {"result": "two.out"},
}
FIRST = {"nodes": {"one": {"component": "t.double"}}, "inputs": {"number": "one.number"}}


def of(component: str, **given: Any) -> dict[str, Any]:
    """Return a spec with one node, named x."""
    return {"nodes": {"x": {"component": component, **given}}}


def started(component: str, **given: Any) -> tuple[Node, Node]:
    graph = flow.start(of(component, **given))
    return graph, graph.children["x"]


# Nodes that vanish


@pytest.mark.parametrize("removed", [{}, {"removed": "keep"}])
def test_a_node_that_vanished_gets_and_gives_nothing_any_more(removed: dict[str, str]) -> None:
    graph = flow.start(TWICE)
    one, gone = graph.children["one"], graph.children["two"]
    graph.apply({**FIRST, **removed})
    testing.drain()
    graph.inputs["number"].write(1)
    gone.outputs["out"].write("stays here")
    testing.drain()

    assert one.outputs["out"].peek(9) == [2]
    assert gone.inputs["number"].size == 0
    assert graph.outputs["result"].size == 0
    assert gone.outputs["out"].size == 1
    assert gone.status == ("completed" if removed else "terminated")
    assert flow.get(gone.pk).parent is None


# Ports


def test_a_default_lets_a_node_go_on_that_waited_for_it() -> None:
    graph, node = started("t.both")
    node.inputs["a"].write(1)
    testing.drain()
    assert node.status == "suspended"
    graph.apply(of("t.both", inputs={"b": {"default": 2}}))
    testing.drain()

    assert list(node.outputs["out"]) == [[1, 2]]


def test_only_what_differs_is_changed() -> None:
    given: dict[str, Any] = {"y": {"default": 5}}
    graph, node = started("t.add", inputs=given)
    node.inputs["y"].default = 6  # by a variable, or an operator
    node.inputs["x"].channels = ["/x"]
    graph.apply(of("t.add", inputs=given))
    assert node.inputs["y"].default == 6
    graph.apply(of("t.add", inputs={"y": {"default": 5, "channels": ["/y"]}}))

    assert node.inputs["y"].default == 6
    assert node.inputs["y"].channels == ["/y"]
    assert node.inputs["x"].channels == ["/x"]


@pytest.mark.parametrize("more", [{}, {"named": {}}])
@pytest.mark.conformance
def test_ports_that_came_into_being_stay_with_their_messages(more: dict[str, Any]) -> None:
    wild = {"*": {"default": 3}}
    graph, node = started("t.sum", inputs=wild)
    node.pause()
    node.inputs["dynamic"].write("unread")
    graph.apply(of("t.sum", inputs=wild | more))

    assert node.inputs["dynamic"].peek() == ["unread"]
    assert set(node.inputs) == {"number", "dynamic", *more}
    graph.apply(of("t.sum", inputs={"*": {"default": 4}, **more}))
    assert node.inputs["dynamic"].default == 3
    assert node.inputs["new"].default == 4


def test_a_port_that_is_named_no_more_goes_unless_messages_lie_on_it() -> None:
    graph, node = started("t.sum", inputs={"more": {}, "used": {}, "number": {"default": 1}})
    node.pause()
    node.inputs["used"].write("unread")
    graph.apply(of("t.sum"))

    assert set(node.inputs) == {"number", "used"}
    assert node.inputs["used"].peek() == ["unread"]
    assert node.inputs["number"].default is flow.NOTHING


def test_a_port_that_an_edge_still_names_stays() -> None:
    wild: dict[str, Any] = {"component": "t.wild", "inputs": {"a": {"default": 1}}}
    spec = {"nodes": {"x": wild}, "inputs": {"in": "x.a"}}
    graph = flow.start(spec)
    node = graph.children["x"]
    node.pause()
    graph.inputs["in"].write("unread")
    graph.apply({"nodes": {"x": {"component": "t.wild"}}, "inputs": {"in": "x.a"}})

    assert node.inputs["a"].peek() == ["unread"]
    assert node.inputs["a"].default == 123


def test_ports_of_the_graph_follow() -> None:
    by_hand = {"number": {"channels": ["/numbers"]}, "by_hand": {}}
    graph = flow.start(TWICE, inputs=by_hand)
    graph.apply({**TWICE, "outputs": {"result": "two.out", "half": "one.out"}})
    assert list(graph.outputs) == ["result", "half"]
    assert graph.inputs["number"].channels == ["/numbers"]
    graph.apply({"nodes": TWICE["nodes"]})

    assert list(graph.inputs) == ["by_hand"]
    assert list(graph.outputs) == []


# Nodes that are adopted


def test_a_node_that_has_1_is_not_adopted_where_the_spec_has_true() -> None:
    there = flow.start("t.recorder", args=[1], run=False)
    with pytest.raises(flow.GraphError, match="its args differ"):
        flow.start(of("t.recorder", args=[True], init=there.pk))
    graph = flow.start(of("t.recorder", args=[1], init=there.pk))

    assert graph.children == {"x": there}
    with pytest.raises(flow.GraphError, match=r"does not fit: .* has a parent"):
        flow.start(of("t.recorder", args=[1], init=there.pk))


def test_an_adopted_node_gets_the_ports_of_the_spec_and_keeps_its_others() -> None:
    there = flow.start("t.add", run=False, inputs={"x": {"channels": ["/mine"]}})
    flow.start(of("t.add", init=there.pk, inputs={"y": {"default": 9, "init": [1]}}))

    assert there.inputs["y"].default == 9
    assert there.inputs["y"].peek() == [1]
    assert there.inputs["x"].channels == ["/mine"]


# Whatever the change


def spec_of(nodes: dict[str, Any], edges: set[str]) -> dict[str, Any]:
    """Return a spec of nodes of which each name has a component."""
    kinds = {"one": "t.add", "two": "t.wild", "inner": "t.inner_of_any"}
    nodes = {name: {"component": kinds[name], **given} for name, given in nodes.items()}
    inputs = {"in": [f"{name}.x" for name in nodes if name != "inner"]} if nodes else {}
    joined = [edge for edge in sorted(edges) if {"one", "two"} <= set(nodes)]
    return {"nodes": nodes, "edges": joined, "inputs": inputs}


def made(graph: Node, spec: dict[str, Any]) -> dict[str, Any]:
    """Return what there is of a graph: the ports that it names, its jobs and connections."""
    nodes = {"": graph, **graph.children}
    names = {node.pk: name for name, node in nodes.items()}
    stored = Node.objects.filter(pk__in=names).select_related("queue")
    links = Connection.objects.filter(source__node__in=names, target__node__in=names)
    ends = ("source__node", "source__name", "target__node", "target__name")
    return {
        "ports": {
            (names[row.node_id], row.direction, row.name): (
                (row.mode, row.type, row.has_default, json.dumps(row.value), row.meta),
                sorted(row.channel_rows.values_list("name", flat=True)),
            )
            for row in NodePort.objects.filter(node__in=names)
            if is_named(spec, names[row.node_id], row)
        },
        "jobs": {names[row.pk]: (row.queue.name, row.job_options) for row in stored},
        "edges": {(names[a], b, names[c], d) for a, b, c, d in links.values_list(*ends)},
    }


def is_named(spec: dict[str, Any], node: str, port: NodePort) -> bool:
    """Return whether a port is declared or named, and did not come into being by a *."""
    if node == "one" and port.name in ("x", "y", "out"):
        return True
    sides = spec["nodes"].get(node, spec)
    return port.name in sides.get("inputs" if port.direction == "in" else "outputs", {})


def is_as_started(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Assert that a graph that changed is as one that was started so."""
    graph = flow.start(before)
    graph.apply(after)
    changed = made(graph, after)
    assert changed == made(flow.start(after), after)
    graph.apply(after)
    assert made(graph, after) == changed


PORT = {"default": {"a": 1}, "channels": ["/a", "/b"]}
ONE: Any = {
    "one": {"inputs": {"x": PORT, "new": {"more": True}}, "queue": "slow"},
    "two": {"inputs": {"x": {"type": "dict"}}, "outputs": {"*": {"mode": "memory"}}},
}
OTHER: Any = {
    "one": {"inputs": {"x": {"default": {"a": True}}}, "job": {"priority": 1}},
    "two": {"inputs": {"y": {"channels": ["/b"]}}, "queue": "fast"},
    "inner": {"inputs": {"x": PORT, "*": {}}},
}


CHANGES = [
    (ONE, {"one.out -> two.x", "two.out -> one.y"}, OTHER, {"one.out -> two.y"}),
    (OTHER, {"one.out -> two.y"}, ONE, {"one.out -> two.x", "two.out -> one.y"}),
    (OTHER, {"one.out -> two.y"}, {"two": {}, "inner": {}}, set()),
]


@pytest.mark.conformance
@pytest.mark.parametrize("change", CHANGES)
def test_a_graph_that_changed_is_as_one_that_was_started_so(change: Any) -> None:
    flow.graph("t.inner_of_any", TWICE)
    is_as_started(spec_of(*change[:2]), spec_of(*change[2:]))
