"""What is wrong with a spec: all of it at once, whatever it is."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from hipq_django.exceptions import InvalidJobError
from hipq_django.flow.declared_ports import port_options
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.check import MAX_PROBLEMS, problems_of
from hipq_django.flow.graphs.facts import ComponentFacts, Facts, Standing
from hipq_django.flow.graphs.problem import Problem, errors_of


def ports(**given: dict[str, Any]) -> dict[str, Any]:
    return {name.rstrip("_"): port_options(name.rstrip("_"), given[name]) for name in given}


def refuse(what: Any) -> None:
    if what:
        raise FlowError(f"{what} does not fit.")


def refuse_job(options: Any) -> None:
    for option, value in options.items():
        if value == "wrong":
            raise InvalidJobError(f"{option} is wrong.")


ANY = {"*": port_options("*", {})}
COMPONENTS = {
    "add": ComponentFacts(ports(x={}, y={}), ports(out={}), refuse),
    "wild": ComponentFacts(ANY, ANY),
    "number": ComponentFacts(ports(x={"type": "int"}), ports(out={"type": "int"}), refuse, "q"),
    "any_number": ComponentFacts(ports(x={"type": "float"}), ports(out={"type": "float"})),
    "order": ComponentFacts(ports(x={"type": "dict"}, y={"default": 1}), {}),
    "flow.jobs": ComponentFacts(ports(in_={}), ports(out={})),
    "graph": ComponentFacts({}, {}, problems=[Problem("nodes.a", "it is wrong.")], is_graph=True),
    "large": ComponentFacts({}, {}, is_graph=True, nodes=1_001),
    "deep": ComponentFacts({}, {}, is_graph=True, levels=20),
}
NODES_THERE = {
    5: Standing(5, "number", "q", []),
    6: Standing(6, "number", "other", ["a"], parent=1),
    7: Standing(7, "flow.graph", "default", []),
}
FACTS = Facts(lambda: COMPONENTS, COMPONENTS.get, NODES_THERE.get, ["charge"], refuse_job)
NODES = {"a": {"component": "add"}, "b": {"component": "add"}}
GOOD = {
    "nodes": NODES | {"w": {"component": "wild", "args": [], "init": True, "queue": "q"}},
    "edges": ["a.out -> b.x", "b.out -> w.anything", "w.some -> a.y"],
    "inputs": {"x": ["a.x", "w.new"]},
    "outputs": {"result": "b.out"},
}


def texts(spec: Any) -> list[str]:
    return [str(problem) for problem in errors_of(problems_of(spec, FACTS))]


def of(component: str, **given: Any) -> Any:
    """Return a spec with one node, named a."""
    return {"nodes": {"a": {"component": component, **given}}}


def test_nothing_is_wrong_with_a_good_spec() -> None:
    assert texts(GOOD) == []
    assert texts({"nodes": {}}) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (None, "spec: it is None, not an object."),
        ([], "spec: it is [], not an object."),
        ({}, "nodes: there is no object of nodes."),
        ({"nodes": {}, "edgse": []}, "spec: it has no key 'edgse'. (did you mean 'edges'?)"),
        ({"nodes": {"a": 1}}, "nodes.a: it is 1, not an object."),
        ({"nodes": {"": {"component": "add"}}}, "the name '' cannot be used."),
        ({"nodes": {"a": {}}}, "nodes.a.component: it is None, not a name."),
        ({"nodes": {"a": {"component": "ad"}}}, "nodes.a.component: 'ad' is not declared."),
        ({"nodes": {"a": {"component": "add", "args": 1}}}, "nodes.a.args: it is 1. Give a list."),
        ({"nodes": {"a": {"component": "add", "inputs": {"x": 1}}}}, "nodes.a.inputs.x: it is 1"),
        (
            {"nodes": {"a": {"component": "add", "inputs": {"x": {"type": "date"}}}}},
            "nodes.a.inputs.x: port 'x': type 'date' is none of JSON's",
        ),
        (GOOD | {"edges": "a.out -> b.x"}, "edges: it is"),
        (GOOD | {"edges": ["a.out b.x"]}, "edges[0]: it is 'a.out b.x'."),
        (GOOD | {"edges": ["a.out -> c.x"]}, "edges[0]: there is no node 'c'."),
        (GOOD | {"edges": ["a.x -> b.x"]}, "has no out-port 'x'. It is an in-port."),
        (GOOD | {"edges": ["a.out -> b.z"]}, "node 'b' has no in-port 'z'."),
        (GOOD | {"edges": ["a.out -> b.x"] * 2}, "edges[1]: a.out -> b.x is there twice."),
        (GOOD | {"inputs": {"a b": "a.x"}}, "inputs.a b: 'a b' cannot be the name of a port."),
        (GOOD | {"inputs": {"x": "a.out"}}, "node 'a' has no in-port 'out'. It is an out-port."),
        (GOOD | {"outputs": {"x": 5}}, 'outputs.x: it is 5. Give "node.port", or a list.'),
        (GOOD | {"removed": "drop"}, "removed: it is 'drop'. Give 'keep'."),
        ({"nodes": {"a": object()}}, "spec: it is not JSON"),
        ({"nodes": {str(n): {} for n in range(1_001)}}, "nodes: there are 1,001"),
    ],
)
def test_each_problem_is_said(spec: Any, said: str) -> None:
    assert any(said in text for text in texts(spec)), texts(spec)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (of("add", args=[1]), ["nodes.a.args: [1] does not fit."]),
        (of("flow.jobs", args=["no.such"]), ["nodes.a.args: 'no.such' is no declared job type."]),
        (
            of("add", job={"priority": "wrong", "timeout": 1}, queue="wrong"),
            ["nodes.a.job.priority: priority is wrong.", "nodes.a.queue: queue is wrong."],
        ),
        (
            of("number", inputs={"x": {"type": "int", "init": [1, "a", {}]}}),
            [
                "nodes.a.inputs.x.init[1]: port 'x' takes int",
                "nodes.a.inputs.x.init[2]: port 'x' takes int",
            ],
        ),
        (
            of("number", outputs={"out": {"type": "int", "init": ["a"]}}),
            ["nodes.a.outputs.out.init"],
        ),
        (of("wild", inputs={"*": {"init": [1]}}), ["nodes.a.inputs.*.init: * stands for other"]),
        (of("add", inputs={"x": {"init": 5}}), ["nodes.a.inputs.x.init: it is 5, not a list."]),
        (of("number", init=999_999), ["nodes.a.init: there is no node 999999."]),
        (
            of("number", init=6),
            [
                "its queue is 'other', not 'q'",
                "its args differ",
                "it has a parent, node 1",
            ],
        ),
        (of("add", init=5), ["its component is 'number', not 'add'", "its queue is 'q'"]),
        (of("graph"), ["nodes.a.component: in graph 'graph': nodes.a: it is wrong."]),
        (of("large"), ["nodes: there are 1,001 with those of graphs in it, at most 1,000 may be."]),
        (of("deep"), ["the tree would be 21 levels deep, at most 20 are allowed."]),
        (
            {
                "nodes": {
                    "a": {"component": "number", "init": 5},
                    "b": {"component": "number", "init": 5},
                }
            },
            ["nodes.b.init: node 5 is 'a' already."],
        ),
    ],
)
def test_what_does_not_fit_is_said(spec: Any, said: list[str]) -> None:
    found = texts(spec)

    assert len(found) == len(said), found
    assert all(any(part in text for text in found) for part in said), found


@pytest.mark.parametrize("spec", [of("number", init=5), of("number", queue="q", init=5)])
def test_a_node_that_fits_is_no_problem(spec: Any) -> None:
    assert texts(spec) == []


def test_a_graph_that_changes_keeps_the_components_of_its_nodes() -> None:
    children = {"a": NODES_THERE[6], "b": NODES_THERE[7]}
    facts = Facts(lambda: COMPONENTS, COMPONENTS.get, NODES_THERE.get, children=children)

    def found(spec: Any) -> list[str]:
        return [str(problem) for problem in problems_of(spec, facts) if problem.level == "error"]

    assert found(of("number", init=6)) == []  # adopted before
    assert "the child of this name is node 6." in found(of("number", init=5))[0]
    assert "node 6 is 'number'." in found(of("wild"))[0]
    assert found({"nodes": {"b": {"component": "deep"}}, "edges": []})[0].endswith("MAX_DEPTH)")


@pytest.mark.parametrize(
    ("source", "target", "is_wrong"),
    [
        ("number", "order", True),
        ("number", "number", False),
        ("number", "any_number", False),
        ("any_number", "number", True),
        ("number", "wild", False),
        ("add", "order", False),
    ],
)
def test_types_of_both_ends_of_an_edge(source: str, target: str, is_wrong: bool) -> None:
    nodes = {"a": {"component": source}, "b": {"component": target}}
    found = texts({"nodes": nodes, "edges": ["a.out -> b.x"]})

    assert bool(found) == is_wrong
    if is_wrong:
        assert "edges[0]: 'out' gives" in found[0]
    nodes["b"]["inputs"] = {"x": {}}  # type: ignore[assignment]  # takes anything
    assert texts({"nodes": nodes, "edges": ["a.out -> b.x"]}) == []


def test_in_ports_that_nothing_leads_to_are_warnings() -> None:
    nodes = {
        "a": {"component": "add"},
        "b": {"component": "order", "inputs": {"x": {"init": [{}]}}},
        "c": {"component": "add", "inputs": {"x": {"channels": ["/a"]}, "y": {"default": None}}},
        "d": {"component": "number", "init": 5},
        "e": {"component": "wild"},
    }
    found = problems_of({"nodes": nodes, "inputs": {"in": "a.x"}}, FACTS)

    assert [(problem.path, problem.level) for problem in found] == [("nodes.a.inputs.y", "warning")]
    assert str(found[0]).startswith("warning: nodes.a.inputs.y: nothing leads to it")
    assert errors_of(found) == []


def test_a_problem_is_an_error_unless_it_says_otherwise() -> None:
    assert Problem("path", "message").level == Problem("path", "message", "hint").level == "error"


def test_all_problems_are_said_at_once() -> None:
    spec = {
        "nodes": {"a": {"component": "ad"}, "b": {"component": "add"}},
        "edges": ["c.out -> b.x", "b.nothing -> b.x"],
        "outputs": {"out": "d.out"},
    }

    assert len(texts(spec)) == 4


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("a.out -> b.x"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "edges", "inputs", "outputs", "component", "init", "a", "b", "removed"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(values)
def test_whatever_is_given_there_is_a_list_of_problems(spec: Any) -> None:
    found = problems_of(spec, FACTS)

    assert all(isinstance(problem, Problem) and problem.path for problem in found)
    assert len(found) <= MAX_PROBLEMS
