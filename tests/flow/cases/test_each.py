"""Cases 100 to 102: `each`, and the test kit itself."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from tests.testapp.flows import Both, CodeError, Recorder

pytestmark = pytest.mark.django_db


def pairs(**inputs: Any) -> flow.Node:
    return flow.start(Both, inputs={"a": {}, "b": {}} | inputs, run=False)


def result(node: flow.Node, **data: Any) -> list[Any]:
    for port, values in data.items():
        node.inputs[port].write_many(values)
    testing.drain()
    return list(node.outputs["out"])


def test_case_100_pairs_in_order() -> None:
    node = pairs()

    assert result(node, a=[1, 2, 3], b=[4]) == [[1, 4]]
    assert node.status == "suspended"
    assert node.inputs["a"].peek(9) == [2, 3]
    assert result(node, b=[5, 6]) == [[2, 5], [3, 6]]
    assert node.status == "completed"


@pytest.mark.parametrize("default", [7, None, False, 0])
def test_case_100_a_default_fills_in(default: Any) -> None:
    node = pairs(b={"default": default})

    assert result(node, a=[1, 2]) == [[1, default], [2, default]]


def test_case_100_all_defaults_count_once() -> None:
    node = pairs(a={"default": 1}, b={"default": 2})
    for _ in range(3):
        node.run()
        testing.drain()
    assert node.outputs["out"].size == 0
    assert node.outputs["out"].default == [1, 2]
    with flow.group(as_default=True):
        node.inputs["a"].write(5)
    testing.drain()

    assert node.outputs["out"].default == [5, 2]
    assert "flow.each:a,b" not in node.state


@flow.component("t.two_loops")
class TwoLoops(flow.Component):
    """Has two loops over defaults."""

    a, b = flow.In(default=1), flow.In(default=2)

    def perform(self) -> None:
        for a in self.each("a"):
            Recorder.seen.append(("a", a))
        for b in self.each("b"):
            Recorder.seen.append(("b", b))


def test_case_100_loops_do_not_disturb_each_other() -> None:
    node = flow.start(TwoLoops)
    for _ in range(2):
        node.run()
        testing.drain()

    assert Recorder.seen == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), ([{"a": 1}], [{"a": True}])])
def test_case_100_true_is_not_one(before: Any, after: Any) -> None:
    """Python takes them for equal, JSON does not: the default has changed."""
    node = pairs(b={"default": 2})
    for default in (before, after):
        node.inputs["a"].default = default
        node.run()
        testing.drain()

    assert json.dumps(node.outputs["out"].default) == json.dumps([after, 2])


@flow.component("t.small_batches", batch=3)
def small_batches(x: Any) -> Any:
    """Make way often."""
    return x


def test_runs_make_way_after_a_batch() -> None:
    node = flow.start(small_batches, data={"x": list(range(10))})
    testing.run_inline(node, queue=False)
    assert node.status == "queued"
    assert node.inputs["x"].size == 7
    testing.drain()

    assert list(node.outputs["out"]) == list(range(10))
    assert flow.Node.objects.get(pk=node.pk).runs == 4


@flow.component("t.nested_each", retry=hipq.Fixed(0, max_attempts=2))
class NestedEach(flow.Component):
    """Writes each item of an order; raises at a bad one."""

    order, item = flow.In(), flow.In()
    out = flow.Out()

    def perform(self) -> None:
        for order in self.each("order"):
            for item in self.each("item"):
                if item == "bad":
                    raise CodeError(item)
                self.out.write([order, item])
                if item == "last":
                    break


@pytest.mark.parametrize("order", [{}, {"default": "o"}])
def test_a_tuple_is_complete_when_all_in_it_are(order: Any) -> None:
    """Neither the order nor what was done for it counts, whichever item raises."""
    data = {"order": [] if order else ["o"], "item": ["a", "bad"]}
    node = flow.start(NestedEach, inputs={"order": order}, data=data)
    testing.drain(errors=False)

    assert {port: node.inputs[port].peek(9) for port in data} == data
    assert not node.outputs["out"].has_data
    assert flow.Node.objects.get(pk=node.pk).state_values == {}


def test_case_101() -> None:
    flow.start(Recorder)
    flow.start(Recorder, job={"queue": "partner"})
    bad = flow.start(Recorder, run=False)
    bad.state.set(perform=["raise"])
    bad.run()
    with pytest.raises(CodeError):
        testing.drain()
    assert Recorder.calls.count("perform") == 3
    bad.run(force=True)
    assert testing.drain(errors=False) == 1

    endless = flow.start("t.endless")
    with pytest.raises(TimeoutError, match=r"after 0\.2 seconds"):
        testing.drain(timeout=0.2)
    assert endless.status in ("queued", "completed")


def test_case_102() -> None:
    node = flow.start(Recorder, run=False)
    testing.run_inline(node, queue=False)
    assert Recorder.calls == []
    testing.run_inline(node)
    assert Recorder.calls == ["startup", "perform"]
    node.state.set(perform=["raise"])
    with pytest.raises(CodeError):
        testing.run_inline(node)
    testing.run_inline(node, errors=False)
    assert Recorder.calls.count("perform") == 3


@pytest.fixture(autouse=True)
def no_node_is_left_running() -> Iterator[None]:
    yield
    assert not [row for row in flow.Node.objects.all() if row.status == "running"]
