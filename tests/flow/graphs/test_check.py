"""What is wrong with a spec: all of it at once, whatever it is; nothing of it is left."""

from typing import Any

import pytest
from django.db import transaction
from hypothesis import given, strategies as st

from hipq_django import flow
from hipq_django.flow.graphs.problem import MAX_PROBLEMS, errors_of
from hipq_django.flow.models import NodePort
from hipq_django.models import Queue

pytestmark = pytest.mark.django_db

NODES: dict[str, Any] = {"a": {"component": "t.add"}, "b": {"component": "t.add"}}
GOOD: dict[str, Any] = {
    "nodes": NODES | {"w": {"component": "t.wild", "args": [], "init": True, "queue": "q"}},
    "edges": ["a.out -> b.x", "b.out -> w.anything", "w.some -> a.y"],
    "inputs": {"x": ["a.x", "w.new"]},
    "outputs": {"result": "b.out"},
}
INNER = {"nodes": {"x": {"component": "t.add"}}, "inputs": {"in": "x.x"}}


def texts(spec: Any, **options: Any) -> list[str]:
    return [str(problem) for problem in errors_of(flow.check(spec, **options))]


def of(component: str, **given: Any) -> Any:
    """Return a spec with one node, named a."""
    return {"nodes": {"a": {"component": component, **given}}}


def test_nothing_is_wrong_with_a_good_spec_and_nothing_of_it_is_made() -> None:
    assert texts(GOOD) == texts({"nodes": {}}) == []
    assert not flow.Node.objects.exists()
    assert not NodePort.objects.exists()
    assert not Queue.objects.filter(name="q").exists()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "spec: it is None, not an object."),
        ({}, "nodes: there is no object of nodes."),
        ({"nodes": {}, "edgse": []}, "spec: it has no key 'edgse'. (did you mean 'edges'?)"),
        ({"nodes": {"": {"component": "t.add"}}}, "the name '' cannot be used."),
        ({"nodes": {"a": {}}}, "nodes.a.component: it is None. Give the name of a component."),
        (of("t.ad"), "nodes.a.component: component 't.ad' is not declared, did you mean 't.add'?"),
        (of("t.add", args=[1]), "nodes.a: component 't.add': perform cannot be called"),
        (of("t.add", job={"priority": "high"}), "nodes.a: priority"),
        (of("t.add", inputs={"x": {"type": "date"}}), "type 'date' is none of JSON's"),
        (
            of("t.add", inputs={"x": {"type": "int", "init": [1, "a"]}}),
            "nodes.a.inputs.x.init: port 'x' takes int",
        ),
        (of("t.add", init=999_999), "nodes.a.init: there is no node 999999."),
        (of("flow.jobs", args=["no.such"]), "nodes.a.jobs: 'no.such' is no declared job type"),
        (of("t.has_wrong"), "nodes.a.component: in graph 't.has_wrong': nodes.a.component: compon"),
        (GOOD | {"edges": ["a.out b.x"]}, "edges[0]: it is 'a.out b.x'."),
        (GOOD | {"edges": ["a.out -> c.x"]}, "edges[0]: there is no node 'c'."),
        (GOOD | {"edges": ["a.out -> b.z"]}, "has no in-port 'z'"),
        (GOOD | {"edges": ["a.out -> b.x"] * 2}, "edges[1]: a.out -> b.x is there twice."),
        (GOOD | {"inputs": {"x": "a.out"}}, "has no in-port 'out'"),
        (GOOD | {"outputs": {"x": 5}}, 'outputs.x: it is 5. Give "node.port", or a list.'),
        ({"nodes": {"a": object()}}, "spec: it is not JSON"),
        ({"nodes": {str(n): NODES["a"] for n in range(1_001)}}, "there are more than 1,000"),
    ],
)
def test_each_problem_is_said(spec: Any, said: str) -> None:
    flow.graph("t.has_wrong", of("no.such"))
    flow.graph("t.inner", INNER)

    found = texts(spec)
    assert len(found) == 1, found
    assert said in found[0]
    assert not flow.Node.objects.exists()


def test_all_problems_are_said_at_once() -> None:
    nodes = {"a": {"component": "t.ad"}, "b": {"component": "t.add"}, "c": {"component": 5}}
    edges = ["d.out -> b.x", "b.nothing -> b.x", "a.out -> b.y", "b.out"]
    spec = {"nodes": nodes, "edges": edges, "outputs": {"out": "d.out"}}
    with pytest.raises(flow.GraphError) as caught:
        flow.start(spec)

    assert {problem.path for problem in caught.value.problems} == {
        "nodes.a.component", "nodes.c.component", "edges[0]", "edges[1]", "edges[3]", "outputs.out",
    }  # fmt: skip
    assert not flow.Node.objects.exists()


@pytest.mark.parametrize(
    ("source", "target", "is_wrong"),
    [
        ("int", "dict", True),
        ("int", "float", False),
        ("float", "int", True),
        ("", "dict", False),
    ],
)
def test_types_of_both_ends_of_an_edge(source: str, target: str, is_wrong: bool) -> None:
    nodes = {
        "a": {**NODES["a"], "outputs": {"out": {"type": source}}},
        "b": {**NODES["b"], "inputs": {"x": {"type": target}}},
    }

    assert texts({"nodes": nodes, "edges": ["a.out -> b.x"]}) == (
        [f"edges[0]: 'out' gives {source}, and 'x' takes {target}."] if is_wrong else []
    )


def test_in_ports_that_nothing_leads_to_are_warnings() -> None:
    flow.graph("t.inner", INNER)
    there = flow.start("t.add", run=False)
    nodes = {
        "a": {"component": "t.both"},
        "b": {"component": "t.add", "inputs": {"x": {"init": [{}]}}},
        "c": {"component": "t.both", "inputs": {"a": {"channels": ["/a"]}, "b": {"default": None}}},
        "d": {"component": "t.add", "init": there.pk},
        "e": {"component": "t.wild"},
        "f": {"component": "t.inner"},
    }
    found = flow.check({"nodes": nodes, "inputs": {"in": "a.a"}})

    assert [(problem.path, problem.level) for problem in found] == [
        ("nodes.a.inputs.b", "warning"),
        ("nodes.f.inputs.in", "warning"),
    ]
    assert str(found[0]).startswith("warning: nodes.a.inputs.b: nothing leads to it")
    flow.start({"nodes": nodes})  # is not refused for them


anything: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ports: Any = st.dictionaries(
    st.sampled_from(["number", "out", "*", "in", "new", "order", "a b"]),
    st.fixed_dictionaries(
        {},
        optional={
            "init": st.lists(anything, max_size=2) | anything,
            "type": st.sampled_from(["int", "dict", "date"]) | anything,
            "default": anything,
            "channels": st.just(["/a"]) | anything,
            "mode": st.sampled_from(["queue", "memory"]) | anything,
        },
    )
    | anything,
    max_size=3,
)
jobs: Any = st.dictionaries(
    st.sampled_from(
        ["priority", "timeout", "throttle_factor", "time_windows", "queue", "data", "key"]
    ),
    anything,
)
node_specs: Any = st.fixed_dictionaries(
    {},
    optional={
        "component": st.sampled_from(["t.double", "t.cards", "t.wild", "flow.jobs", "t.inner"]),
        "jobs": anything,
        "args": st.lists(anything, max_size=3) | anything,
        "queue": st.sampled_from(["default", "other"]) | anything,
        "init": st.integers(-1, 3) | anything,
        "job": jobs | anything,
        "inputs": ports | anything,
        "outputs": ports | anything,
    },
)
edges: Any = st.lists(
    st.sampled_from(
        ["a.out -> b.number", "b.out -> a.number", "a.x -> b.order", "a.out -> b.order"]
    ),
    max_size=3,
)


@given(
    nodes=st.dictionaries(st.sampled_from(["a", "b"]), node_specs | anything),
    joined=edges | anything,
    more=st.dictionaries(st.sampled_from(["inputs", "outputs", "removed", "other"]), anything),
)
def test_what_the_check_lets_pass_is_started(nodes: Any, joined: Any, more: Any) -> None:
    flow.graph("t.inner", INNER)
    spec = {"nodes": nodes, "edges": joined, **more}
    with transaction.atomic():
        found = flow.check(spec)
        assert len(found) <= 2 * MAX_PROBLEMS
        if errors_of(found):
            with pytest.raises(flow.GraphError):
                flow.start(spec)
        else:
            assert sorted(flow.start(spec).children) == sorted(nodes)
        transaction.set_rollback(True)
