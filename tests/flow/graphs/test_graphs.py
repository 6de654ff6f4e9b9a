"""Graphs as data: made, changed, and run."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.database import clock
from hipq_django.flow import testing
from hipq_django.flow.graphs.problem import errors_of
from hipq_django.flow.models import Graph
from tests.testapp.flows import Recorder, Script

pytestmark = pytest.mark.django_db

TWICE = {
    "nodes": {"one": {"component": "t.double"}, "two": {"component": "t.double"}},
    "edges": ["one.out -> two.number"],
    "inputs": {"number": "one.number"},
    "outputs": {"result": "two.out"},
}


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        ("", TWICE, "graph '': the name must be text"),
        ("t.double", TWICE, "job type, or component, of instance 'default' has this name"),
        ("t.twice", {"nodes": {}}, "'t.twice' is declared twice in instance 'default'"),
    ],
)
def test_code_cannot_name_a_graph_like_this(name: Any, spec: Any, said: str) -> None:
    for _ in range(2):  # a module that is imported again names the same graph
        assert flow.graph("t.twice", {**TWICE}) == "t.twice"
    with pytest.raises(hipq.InvalidJobTypeError, match=said):
        flow.graph(name, spec)

    assert flow.start("t.double", run=False).info["component"] == "t.double"
    assert sorted(flow.start("t.twice").children) == ["one", "two"]
    assert errors_of(flow.check({"nodes": {"a": {"component": "t.twice"}}})) == []


@pytest.mark.parametrize("kind", ["spec", "named in code", "kept in the database"])
def test_a_run_spawns_a_graph(kind: str, script: Script) -> None:
    if kind == "named in code":
        flow.graph("t.spawned_graph", TWICE)
    elif kind == "kept in the database":
        Graph.objects.create(name="t.kept_graph", spec=TWICE)
    given = {"named in code": "t.spawned_graph", "kept in the database": "t.kept_graph"}
    script.perform = lambda run: run.spawn(
        "graph", given.get(kind, TWICE), data={"number": [1]}, alias="spawned"
    )
    node = flow.start("t.scripted", run=False)
    testing.run_inline(node)
    testing.drain(errors=False)

    graph = flow.get("spawned")
    assert (node.child("graph"), graph.info["created_by"]) == (graph, f"node:{node.pk}")
    assert graph.graph == TWICE
    assert list(graph.outputs["result"]) == [4]


def test_a_run_does_not_spawn_an_invalid_graph(script: Script) -> None:
    script.perform = lambda run: run.spawn("graph", {"nodes": {"a": {"component": "missing"}}})
    node = flow.start("t.scripted", run=False)

    with pytest.raises(
        flow.GraphError, match=r"nodes\.a\.component: component 'missing' is not declared"
    ):
        testing.run_inline(node)
    assert node.children == {}


def test_a_graph_begins_at_its_moment() -> None:
    inner = {"nodes": {"first": {"component": "t.recorder", "init": True}}}
    flow.graph("t.begins_later", inner)
    nodes = {"graph": {"component": "t.begins_later"}, **inner["nodes"]}
    at = clock.now("default") + timedelta(hours=1)
    graph = flow.start({"nodes": nodes}, at=at)
    children = [graph.children["first"], graph.children["graph"].children["first"]]
    testing.drain()
    assert Recorder.calls == []
    assert [node.status for node in (graph, *children)] == ["queued"] * 3

    with hipq.testing.travel(hours=2):
        testing.drain()
    assert Recorder.calls == ["startup", "perform"] * 2
    assert [node.status for node in (graph, *children)] == ["completed"] * 3


def test_a_node_above_the_graph_cannot_be_adopted() -> None:
    root = flow.start("t.add", run=False)
    with pytest.raises(flow.GraphError, match=r"nodes\.x\.init.*above it"):
        root.spawn("graph", {"nodes": {"x": {"component": "t.add", "init": root.pk}}})


def test_a_change_that_is_invalid_changes_nothing() -> None:
    node = flow.start(TWICE)
    for wrong in (
        {"nodes": {"one": {"component": "missing"}}},
        {"nodes": {"one": {"component": "t.sum"}}},
        {"nodes": {"one": {"component": "t.double", "init": 99_999}}},
    ):
        with pytest.raises(flow.GraphError):
            node.apply(wrong)
        assert sorted(node.children) == ["one", "two"]
        assert node.graph == TWICE
    with pytest.raises(flow.GraphError, match="is no graph"):
        node.children["one"].apply(TWICE)


def test_a_graph_tells_how_its_children_are_also_those_it_loses_and_gets() -> None:
    spec = {"nodes": {"one": {"component": "t.recorder"}}}
    graph, other = flow.start(spec), flow.start(spec)
    child = graph.children["one"]
    for perform, status in (["suspend"], "suspended"), ([], "completed"), (["raise"], "failed"):
        child.state.set(perform=perform)
        child.run()
        testing.drain(errors=False)
        assert [graph.status, other.status] == [status, "completed"]

    graph.disown("one")
    testing.drain()
    assert graph.status == "completed"
    other.adopt(flow.get(child.pk), "failed")
    testing.drain()
    assert other.status == "failed"
    other.apply(spec)
    testing.drain()
    assert other.status == "completed"


def failed_graph() -> flow.Node:
    """Return a graph in a graph, both failed; the child that raised does so no more."""
    inner = {"nodes": {"one": {"component": "t.recorder"}}}
    flow.graph("t.recorder_in_a_graph", inner)
    graph = flow.start({"nodes": {"inner": {"component": "t.recorder_in_a_graph"}}})
    child = graph.children["inner"].children["one"]
    child.state.set(perform=["raise"])
    child.run()
    testing.drain(errors=False)
    assert [graph.status, graph.children["inner"].status] == ["failed", "failed"]
    child.state.set(perform=[])
    return graph


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.conformance
def test_a_failed_graph_is_repaired_with_its_child(is_paused: bool) -> None:
    graph = failed_graph()
    inner = graph.children["inner"]
    assert (graph.run(), testing.due(graph)) == (graph, 1)
    testing.drain()
    assert graph.status == "failed"
    if is_paused:
        inner.pause()
    inner.children["one"].run(force=True)
    testing.drain()
    if is_paused:
        assert [graph.status, inner.status] == ["failed", "failed"]
        inner.resume()
        testing.drain()

    assert [graph.status, inner.status] == ["completed", "completed"]


def test_nodes_of_graphs_in_graphs_are_counted_before_any_is_made() -> None:
    flow.graph("t.endless_graph", {"nodes": {"again": {"component": "t.endless_graph"}}})
    with pytest.raises(flow.GraphError, match="graphs contain each other"):
        flow.start("t.endless_graph")
    names = ["flow.connect", "t.few", "t.some", "t.many"]
    for component, name in pairwise(names):
        flow.graph(name, {"nodes": {f"n{i}": {"component": component} for i in range(31)}})
    assert flow.check({"nodes": {"a": {"component": "t.some"}}}) == []

    with pytest.raises(flow.GraphError, match="there are more than 1,000 with those of graphs"):
        flow.start("t.many")


def test_a_steady_pipeline_costs_no_runs_of_the_graph() -> None:
    node = flow.start(TWICE)
    testing.drain()
    before = flow.Node.objects.get(pk=node.pk).runs
    for number in range(5):
        node.inputs["number"].write(number)
        testing.drain()

    assert flow.Node.objects.get(pk=node.pk).runs == before
