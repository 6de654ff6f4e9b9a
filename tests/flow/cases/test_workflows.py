"""The workflows of SideJob's workers-core, G1 to G25, as graphs.

Six differ on purpose: all nodes are there from the start (6, 18, 19, 20), those that vanished are
terminated (7), and a graph that does not exist is an error (2).
"""

from collections.abc import Sequence
from typing import Any

import pytest
from pytest_django import Settings

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import LogEntry
from tests.testapp.flows import CodeError

pytestmark = pytest.mark.django_db


@flow.component("g.total")
def total(numbers: Any) -> Any:
    """Sum up a list."""
    return sum(numbers)


@flow.component("g.twice")
def twice(number: Any) -> Any:
    """Double a number."""
    return 2 * number


@flow.component("g.plus")
def plus(x: Any, y: Any) -> Any:
    """Add two numbers."""
    return x + y


@flow.component("g.broken")
def broken(value: Any) -> Any:
    """Fail."""
    raise CodeError("as asked")


@flow.component("g.power")
class Power(flow.Component):
    """Does nothing, with an argument."""

    def perform(self, exponent: int) -> None:
        pass


EMPTY: dict[str, Any] = {"nodes": {}}
ADD_UP = {
    "nodes": {"total": {"component": "g.total"}},
    "inputs": {"numbers": "total.numbers"},
    "outputs": {"total": "total.out"},
}
INNER_RUNS = {"nodes": {"inner": {"component": "flow.graph", "init": True}}}


def twice_the_total(**nodes: dict[str, Any]) -> dict[str, Any]:
    """Return a graph whose second node doubles what the first one gives."""
    parts = {"total": {"component": "g.total"}, "twice": {"component": "g.twice"}}
    return {
        "nodes": {
            n: parts.get(n, {}) | nodes.get(n, {}) for n in [*parts, *(nodes - parts.keys())]
        },
        "edges": ["total.out -> twice.number"],
        "inputs": {"numbers": "total.numbers"},
        "outputs": {"result": "twice.out"},
    }


def doubling(init: Sequence[int]) -> dict[str, Any]:
    """Return a graph whose node has first messages."""
    node = {"component": "g.twice", "inputs": {"number": {"init": list(init)}}}
    return {"nodes": {"twice": node}, "outputs": {"doubled": "twice.out"}}


def run(spec: Any, **data: list[Any]) -> flow.Node:
    """Return a graph that was started, and has got messages, after all was done."""
    graph = flow.start(spec)
    for port, values in data.items():
        graph.inputs[port].write_many(values)
    testing.drain()
    return graph


def never_ran(node: flow.Node) -> bool:
    return node.info["ran_at"] is None


# Graphs run


PLUS = {
    "nodes": {"plus": {"component": "g.plus"}},
    "inputs": {"x": "plus.x", "y": "plus.y"},
    "outputs": {"result": "plus.out"},
}
QUADRUPLED = twice_the_total(again={"component": "g.twice"}) | {
    "edges": ["total.out -> twice.number", "twice.out -> again.number"],
    "outputs": {"doubled": "twice.out", "quadrupled": "again.out"},
}
TOTAL_IS_TEN = {
    "nodes": {
        "total": {"component": "g.total", "init": True, "outputs": {"out": {"default": 10}}},
        "plus": {"component": "g.plus"},
    },
    "edges": ["total.out -> plus.x"],
    "inputs": {"y": "plus.y"},
    "outputs": {"result": "plus.out"},
}
RUNS: dict[str, tuple[Any, dict[str, list[Any]], dict[str, list[Any]]]] = {
    "g01: empty": (EMPTY, {}, {}),
    "g09: first messages of an out-port": (
        twice_the_total(total={"outputs": {"out": {"init": [5]}}}), {}, {"result": [10]},
    ),
    "g10: several first messages": (doubling([4, 5]), {}, {"doubled": [8, 10]}),
    "g15: in and out": (ADD_UP, {"numbers": [[1, 2, 3, 4]]}, {"total": [10]}),
    "g23: along edges": (twice_the_total(), {"numbers": [[1, 2, 3, 4]]}, {"result": [20]}),
    "g24: on to a node and out, too": (
        QUADRUPLED, {"numbers": [[1, 2, 3, 4]]}, {"doubled": [20], "quadrupled": [40]},
    ),
    "g25: defaults of out-ports": (TOTAL_IS_TEN, {"y": [15]}, {"result": [25]}),
}  # fmt: skip


@pytest.mark.conformance
@pytest.mark.parametrize(("spec", "data", "results"), RUNS.values(), ids=RUNS)
def test_what_comes_out_of_graphs(
    spec: Any, data: dict[str, list[Any]], results: dict[str, list[Any]]
) -> None:
    graph = run(spec, **data)

    assert graph.status == "completed"
    assert list(graph.children) == list(spec["nodes"])
    assert {name: list(port) for name, port in graph.outputs.items()} == results


def test_g16_defaults_of_in_ports_go_through() -> None:
    graph = flow.start(PLUS, inputs={"x": {"default": 5}}, data={"y": [7]})
    testing.drain()

    assert graph.outputs["result"].read() == 12


def test_g02_a_graph_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(flow.UnknownComponentError):
        flow.start("g.no_such_graph")

    assert not flow.Node.objects.exists()


def test_g03_a_graph_fails_with_its_child() -> None:
    spec = {"nodes": {"broken": {"component": "g.broken"}}, "inputs": {"in": "broken.value"}}
    graph = flow.start(spec, data={"in": [False]})
    testing.drain(errors=False)

    assert list(graph.children) == ["broken"]
    assert graph.children["broken"].status == "failed"
    assert graph.status == "failed"


# Their specs change


def test_g04_to_g07_a_graph_follows_its_specs() -> None:
    """Nodes that are no more in it are disowned and terminated."""
    graph = flow.start("flow.graph")
    for spec in (EMPTY, INNER_RUNS):
        graph.apply(spec)
        testing.drain()
        assert (graph.status, graph.graph) == ("completed", spec)
    child = graph.children["inner"]
    assert (child.parent, never_ran(child)) == (graph, False)
    graph.apply(EMPTY)
    testing.drain()

    assert (graph.children, graph.child("inner")) == ({}, None)
    assert flow.get(child.pk).parent is None
    assert child.status == "terminated"


# First messages, and nodes that are adopted


def test_g08_first_messages_run_a_node(settings: Settings) -> None:
    settings.HIPQ = {"default": {"FLOW": {"LOG": "all"}}}
    graph = run(doubling([4]))
    child = graph.children["twice"]

    assert child.info["component"] == "g.twice"
    assert child.info["queue"] == "default"
    assert graph.status == "completed"
    first, entry = (row.entry for row in LogEntry.objects.filter(node=child.pk).order_by("pk"))
    assert first["write"] == [{"node": child.pk, "input": "number", "data": [4]}]
    assert entry["read"] == [{"node": child.pk, "input": "number", "data": [4]}]
    assert entry["write"] == [{"node": child.pk, "output": "out", "data": [8]}]
    assert graph.outputs["doubled"].read() == 8


def test_g11_a_node_runs_at_once_without_messages() -> None:
    graph = run(INNER_RUNS)

    assert graph.status == "completed"
    child = graph.children["inner"]
    assert not never_ran(child)
    assert (child.info["component"], child.info["args"]) == ("flow.graph", [])


@pytest.mark.conformance
def test_g12_a_node_that_is_there_is_adopted() -> None:
    there = flow.start(EMPTY)
    assert there.parent is None
    graph = run({"nodes": {"inner": {"component": "flow.graph", "init": there.pk}}})

    assert graph.children == {"inner": there}
    assert flow.get(there.pk).parent == graph


def test_g13_no_node_is_adopted_where_another_one_is_already() -> None:
    there, graph = flow.start(EMPTY), run(INNER_RUNS)
    before = graph.children
    with pytest.raises(flow.GraphError, match="the child of this name is"):
        graph.apply({"nodes": {"inner": {"component": "flow.graph", "init": there.pk}}})

    assert graph.children == before
    assert there.parent is None


def test_g14_a_node_is_adopted_only_if_it_is_as_the_spec_says() -> None:
    there = flow.start(Power, args=[2])
    spec = {"component": "g.power", "args": [2], "init": there.pk}
    for wrong, said in (
        ({"init": 999_999}, "there is no node 999999"),
        ({"queue": "another"}, "its queue is 'default', not 'another'"),
        ({"component": "flow.graph", "args": []}, "its component is 'g.power', not 'flow.graph'"),
        ({"args": [3]}, "its args differ"),
    ):
        with pytest.raises(flow.GraphError, match=said):
            flow.start({"nodes": {"power": spec | wrong}})
        assert there.parent is None

    assert flow.start({"nodes": {"power": spec}}).children == {"power": there}


# The ports of graphs


@pytest.mark.conformance
def test_g17_ports_follow_a_new_spec() -> None:
    graph = run({"nodes": ADD_UP["nodes"]})
    assert (list(graph.inputs), list(graph.outputs)) == ([], [])
    graph.apply(ADD_UP)
    graph.inputs["numbers"].write([1, 2, 3, 4])
    testing.drain()

    assert (list(graph.inputs), list(graph.outputs)) == (["numbers"], ["total"])
    assert graph.outputs["total"].read() == 10


# Their nodes


def test_g18_to_g20_nodes_do_not_run_before_something_comes() -> None:
    flow.graph("g.add_up", ADD_UP)
    nodes = {
        "outer": {"component": "g.add_up"},
        "inner": {"component": "flow.graph", "init": True},
        "twice": {"component": "g.twice"},
    }
    edges = ["inner.out -> twice.number"]
    graph = run({"nodes": nodes, "edges": edges, "inputs": {"numbers": "outer.numbers"}})
    total = graph.children["outer"].children["total"]
    assert graph.status == "completed"
    assert not never_ran(graph.children["inner"])
    assert all(map(never_ran, [total, graph.children["twice"]]))
    graph.inputs["numbers"].write([1, 2, 3])
    testing.drain()

    assert not never_ran(total)


def test_g21_a_node_is_started_once() -> None:
    inner = {"component": "flow.graph", "inputs": {"in": {"init": [1]}}}
    graph = flow.start({"nodes": {"inner": inner}})
    before = graph.children
    testing.drain()
    graph.run()
    assert graph.status == "queued"
    testing.drain()

    assert graph.status == "completed"
    assert graph.children == before


def test_g22_a_node_has_the_options_of_ports_that_the_spec_gives() -> None:
    inner = {"component": "flow.graph", "init": True, "inputs": {"mine": {"default": 123}}}
    graph = run({"nodes": {"inner": inner}})
    graph.run()
    assert graph.status == "queued"
    testing.drain()

    assert graph.status == "completed"
    assert graph.children["inner"].inputs["mine"].default == 123
