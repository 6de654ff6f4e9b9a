"""What a new release changes of nodes that are there: names, queues, ports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.graphs.problem import errors_of
from hipq_django.job_types.registry import forget, get_declared
from hipq_django.models import Job
from tests.declaring import Declare

pytestmark = pytest.mark.django_db

OLD, NEW = "t.former", "t.present"
OLD_JOB, NEW_JOB = "charge_former", "charge_present"

BEFORE: dict[str, Any] = {
    "nodes": {"add": {"component": OLD, "queue": "sums"}, "charge": {"jobs": OLD_JOB}},
    "edges": ["add.out -> charge.in"],
    "inputs": {"number": "add.number"},
    "outputs": {"done": "charge.out"},
}
AFTER: dict[str, Any] = json.loads(json.dumps(BEFORE).replace(OLD, NEW).replace(OLD_JOB, NEW_JOB))

Rename = Callable[[], None]


MOVED = "t.moved"


def release(**options: Any) -> None:
    """Declare a component as another release does."""
    withdraw(MOVED)

    def moved(x: int, limit: int = options.pop("limit", 500)) -> list[int]:
        return [x, limit]

    flow.component(MOVED, **options)(moved)


def withdraw(*names: str) -> None:
    """Let no code declare these components any more."""
    for name in names:
        declared = get_declared("default", name)
        if declared is not None and declared.name == name:
            forget(declared)


@pytest.fixture(autouse=True)
def withdrawn() -> Iterator[None]:
    yield
    withdraw(MOVED)


@pytest.fixture
def rename(declare: Declare) -> Iterator[Rename]:
    """Declare the former release; return what declares the present one instead."""

    def add(number: int) -> int:
        return number + 1

    def present() -> None:
        withdraw(OLD, NEW)
        declare.forget_all()
        flow.component(NEW, aliases=[OLD], public=True)(add)
        declare(NEW_JOB, aliases=[OLD_JOB])(lambda job: "paid")

    flow.component(OLD)(add)
    declare(OLD_JOB)(lambda job: "paid")
    yield present
    withdraw(OLD, NEW)


def results(graph: flow.Node) -> list[Any]:
    testing.drain()
    return [message["data"] for message in graph.outputs["done"]]


@pytest.mark.parametrize("spec", [BEFORE, AFTER])
def test_a_graph_follows_a_spec_with_either_name(rename: Rename, spec: dict[str, Any]) -> None:
    graph, node = flow.start(BEFORE), flow.start(OLD)
    add = graph.child("add")
    rename()

    assert errors_of(flow.check(spec, node=graph)) == []
    graph.apply({**spec, "outputs": {"done": "charge.out", "refused": "charge.error"}})
    graph.inputs["number"].write(1)
    assert graph.child("add") == add
    assert results(graph) == [2]
    assert "refused" in graph.outputs
    other = {**AFTER, "nodes": {**AFTER["nodes"], "add": {"component": "t.double"}}}
    with pytest.raises(flow.GraphError, match="a node keeps its component"):
        graph.apply(other)
    adopts = {"nodes": {"add": {"component": NEW, "init": node.pk}}}
    assert flow.start(adopts).child("add") == node
    started = flow.start(spec)
    started.apply(BEFORE if spec is AFTER else AFTER)
    started.inputs["number"].write(1)
    assert results(started) == [2]


# Queues


def queues_of_runs(node: flow.Node) -> list[str]:
    """Return the queues of the runs of a node, after two more of them."""
    for _ in range(2):
        node.inputs["x"].write(1)
        testing.drain()
    jobs = Job.objects.filter(job_data__node=node.pk).order_by("pk")
    return list(jobs.values_list("queue__name", flat=True))


def test_a_node_follows_its_component_to_another_queue() -> None:
    release()
    node = flow.start(MOVED, run=False)
    assert queues_of_runs(node) == ["default"] * 2
    release(queue="fast")

    assert queues_of_runs(node)[2:] == ["fast"] * 2
    assert node.info["queue"] == "fast"
    graph = flow.start({"nodes": {"x": {"component": MOVED, "init": node.pk}}})
    assert graph.child("x") == node


# Ports


GROWING = "t.growing"


def first_release() -> None:
    withdraw(GROWING)

    @flow.component(GROWING)
    class Growing(flow.Component):
        any_in, out = flow.AnyIn(), flow.Out()

        def perform(self) -> None:
            self.out.write(self.inputs["x"].read())


def next_release() -> None:
    """Declare the same with an in-port and an out-port more."""
    withdraw(GROWING)

    @flow.component(GROWING)
    class Growing(flow.Component):
        any_in, out = flow.AnyIn(), flow.Out()
        limit, more = flow.In(int, default=5), flow.Out()

        def perform(self) -> None:
            for x, limit in self.each("x", "limit"):
                self.more.write([x, limit])


@pytest.fixture
def growing() -> Iterator[flow.Node]:
    """Return a graph whose node was made before its component got more ports."""
    first_release()
    graph = flow.start({"nodes": {"one": {"component": GROWING}}})
    next_release()
    yield graph
    withdraw(GROWING)


def test_a_graph_is_joined_with_ports_of_a_new_release(growing: flow.Node) -> None:
    growing.apply(
        {
            "nodes": {"one": {"component": GROWING}, "two": {"component": "flow.connect"}},
            "edges": ["one.more -> two.in"],
            "inputs": {"x": "one.x", "limit": "one.limit"},
            "outputs": {"more": "two.out"},
        }
    )
    growing.inputs["x"].write(1)
    testing.drain()
    growing.inputs["limit"].write(7)
    growing.inputs["x"].write(2)
    testing.drain()

    assert list(growing.outputs["more"]) == [[1, 5], [2, 7]]
