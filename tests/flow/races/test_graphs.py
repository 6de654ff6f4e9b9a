"""Graphs that are changed while others write to them, on connections whose transactions overlap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow.models import Connection, Graph
from tests.flow.races.conftest import decided_by, end_all, nothing
from tests.job_life.actors import END
from tests.job_life.steps import Steps

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

DOUBLE = {"component": "t.double"}
INNER = {"nodes": {"x": DOUBLE}, "inputs": {"in": "x.number"}, "outputs": {"out": "x.out"}}
BEFORE: dict[str, Any] = {
    "nodes": {
        "hears": {**DOUBLE, "inputs": {"number": {"channels": ["/news"]}}},
        "last": DOUBLE,
        "inner": {"component": "race.inner"},
        "first": {**DOUBLE, "outputs": {"out": {"channels": ["/news"]}}},
        "gone": DOUBLE,
    },
    "edges": ["first.out -> inner.in", "inner.out -> last.number", "gone.out -> last.number"],
    "inputs": {"in": "first.number"},
    "outputs": {"out": "last.out"},
}
DEFAULT = {"number": {"default": 1}}
AFTER: dict[str, Any] = {
    "nodes": {
        "first": {**DOUBLE, "inputs": DEFAULT},
        "new": {**DOUBLE, "inputs": {"number": {"init": [3]}}},
        "inner": {"component": "race.inner"},
        "last": {**DOUBLE, "inputs": DEFAULT},
        "hears": {**DOUBLE, "inputs": {"number": {"channels": ["/news"], "default": 1}}},
    },
    "edges": ["first.out -> new.number", "new.out -> inner.in", "inner.out -> last.number"],
    "inputs": {"in": ["first.number", "last.number"], "more": "hears.number"},
    "outputs": {"out": ["hears.out", "last.out"]},
}

OTHER_INNER = {**INNER, "nodes": {"x": {**DOUBLE, "inputs": DEFAULT}}}


def started() -> flow.Node:
    Graph.objects.update_or_create(name="race.inner", defaults={"spec": INNER})
    graph = flow.start(BEFORE)
    Graph.objects.update(spec=OTHER_INNER)
    return graph


WRITERS: dict[str, Callable[[flow.Node], Callable[[Any], None]]] = {
    "graph": lambda graph: graph.inputs["in"].write,
    "first": lambda graph: graph.children["first"].outputs["out"].write,
    "gone": lambda graph: graph.children["gone"].outputs["out"].write,
    "inner": lambda graph: graph.children["inner"].children["x"].outputs["out"].write,
    "channel": lambda graph: partial(flow.publish, "/news"),
}
GONE = (flow.UnknownPortError, flow.NodeDeletedError)


def ways(graph: flow.Node) -> set[str]:
    """Return the connections of a graph, as its spec would have them."""
    names = {graph.pk: "", **{child.pk: name for name, child in graph.children.items()}}
    rows = Connection.objects.filter(source__node__in=names, target__node__in=names)
    ends = rows.values_list("source__node", "source__name", "target__node", "target__name")
    return {f"{names[a]}.{b} -> {names[c]}.{d}" for a, b, c, d in ends}


@pytest.mark.parametrize(
    "stop",
    [11, 41, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 21, 31, 51, 61, 71, 81))],
)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_graph_is_changed_while_somebody_writes_to_it(
    writer: str, stop: int, steps: Steps
) -> None:
    """Wherever the change stands when the writer comes, neither waits for the other for ever."""
    graph = started()
    write = partial(WRITERS[writer](graph), 1)
    steps.begin("apply", lambda: graph.apply(AFTER), stop)
    steps.begin("write", write, END, refusals=GONE)
    end_all(steps)

    assert sorted(graph.children) == sorted(AFTER["nodes"])
    assert {*AFTER["edges"], ".in -> last.number", "hears.out -> .out"} <= ways(graph)


@decided_by("graphs.applying.lock_ports", without=nothing)
def test_a_graph_locks_its_ports_together(holds: bool, steps: Steps) -> None:
    """The writer has locked the older port, and waits for the other one."""
    double = {"component": "t.double"}
    graph = flow.start(
        {"nodes": {"older": double, "newer": double}, "edges": ["newer.out -> older.number"]}
    )
    nodes = {
        "newer": {**double, "outputs": {"out": {"channels": ["/out"]}}},
        "older": {**double, "inputs": {"number": {"default": 1}}},
    }
    spec = {"nodes": nodes, "edges": ["newer.out -> older.number"]}
    out = graph.children["newer"].outputs["out"]
    applying = steps.begin("apply", lambda: graph.apply(spec), 'insert into "hipq_flow_channel"')
    steps.begin("write", lambda: out.write(1), END)
    if holds:
        end_all(steps)
        assert graph.children["older"].inputs["number"].peek(2) == [1]
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(applying, END)


@decided_by("delivering.with_listeners", without=lambda ports, *_: set(ports))
def test_a_writer_to_a_channel_locks_its_ports_together(holds: bool, steps: Steps) -> None:
    """Who listens is older than who speaks: who deletes both locks it first."""
    first = flow.start("t.sum", run=False, inputs={"number": {"channels": ["/news"]}})
    second = first.spawn("child", "t.sum", run=False)
    out = second.outputs["out"]
    out.channels = ["/news"]
    first.terminate(recursive=True, force=True)
    writing = steps.begin("write", lambda: out.write(1), "select source_id, target_id")
    steps.begin("delete", first.delete, END)
    if holds:
        end_all(steps)
        assert not first.exists()
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(writing, END)
