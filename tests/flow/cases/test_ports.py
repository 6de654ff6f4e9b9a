"""Cases 72 to 90: ports and what lies on them."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.domain.serialization import MAX_DEPTH
from hipq_django.flow import testing
from hipq_django.flow.models import Message
from tests.flow.conftest import in_status
from tests.testapp.flows import (
    Asks,
    Both,
    Double,
    Page,
    Poisoned,
    Recorder,
    Sum,
    Wild,
)

pytestmark = pytest.mark.django_db
NOTHING = flow.NOTHING


@pytest.fixture
def node() -> flow.Node:
    return flow.start(Sum, run=False)


@pytest.mark.parametrize("name", ["", "a b", "é", "x\n", "*", "Number", "missing"])
def test_case_072(name: str, node: flow.Node) -> None:
    with pytest.raises(flow.UnknownPortError):
        node.inputs[name]
    port = node.inputs["number"]
    assert port == flow.get(node.pk).inputs["number"]
    assert hash(port) == hash(flow.get(node.pk).inputs["number"])
    assert port != node.outputs["out"]


@pytest.mark.conformance
def test_case_073() -> None:
    options = {"default": 123, "channels": ["/orders"]}
    node = flow.start(Wild, inputs={"*": options}, run=False)
    assert list(node.inputs) == []
    port = node.inputs["new"]
    flow.publish("/orders/1", "x")

    assert list(node.inputs) == ["new"]
    assert [port.read(), port.read()] == ["x", 123]


def test_case_074() -> None:
    node = flow.start(Wild, run=False)
    given = {"a": {"default": 1}, "*": {"default": 5}}
    node.set_ports(inputs=given)

    assert given == {"a": {"default": 1}, "*": {"default": 5}}
    assert node.inputs["a"].default == 1
    assert node.inputs["other"].default == 5
    node.set_ports(inputs={"a": {}})
    assert node.inputs["other"].default == 123


def test_case_075(node: flow.Node) -> None:
    node.pause()
    node.inputs["number"].write(1)
    node.set_ports(inputs={"number": {"default": 9}})

    assert [node.inputs["number"].read() for _ in range(2)] == [1, 9]


def test_case_076() -> None:
    node = flow.start(Wild, inputs={"a": {}}, run=False)
    node.pause()
    for name in ("a", "dynamic"):
        node.inputs[name].write(1)
    node.set_ports(outputs={})
    assert list(node.inputs) == ["a", "dynamic"]
    node.set_ports(inputs={})

    assert list(node.inputs) == []
    assert node.inputs["a"].size == 0


def test_case_077(node: flow.Node) -> None:
    other = flow.start(Sum, inputs={"number": {"channels": ["/a/"]}}, run=False)
    assert other.inputs["number"].channels == ["/a"]
    node.inputs["number"].channels = ["/b", "/c", "/b"]
    assert node.inputs["number"].channels == ["/b", "/c"]
    node.inputs["number"].channels = []
    assert node.inputs["number"].channels == []
    for wrong in (["b"], "b", [""], [None]):
        with pytest.raises(flow.InvalidPortError):
            node.inputs["number"].channels = wrong  # type: ignore[assignment]  # what is refused


VALUES: list[Any] = ["text", 1, 1.5, True, None, {"a": [1]}, [[1, [2]], {}], "", 0, False]


def test_case_078(node: flow.Node) -> None:
    node.pause()
    port = node.inputs["number"]
    for value in VALUES:
        port.write(value)

    assert json.dumps([port.read() for _ in VALUES]) == json.dumps(VALUES)
    assert port.read() is NOTHING


def test_case_079(node: flow.Node) -> None:
    port = node.inputs["number"]
    assert (port.size, port.has_data) == (0, False)
    port.default = 1
    assert (port.size, port.has_data) == (0, True)
    port.write(1)
    assert (port.size, port.has_data) == (1, True)


def test_case_080(node: flow.Node) -> None:
    port = node.inputs["number"]
    for value in VALUES:
        port.default = value
        assert json.dumps(port.default) == json.dumps(value)
    del port.default
    assert port.default is NOTHING
    port.default = 1
    port.default = NOTHING
    assert not port.has_data


@pytest.mark.conformance
def test_a_default_goes_where_messages_go_and_wakes_nobody(node: flow.Node) -> None:
    source, listener = flow.start(Sum, run=False), flow.start(Sum, run=False)
    source.outputs["out"].connect(node.inputs["number"])
    source.outputs["out"].channels = ["/news"]
    listener.inputs["number"].channels = ["/news"]
    for value in (1, 2):
        source.outputs["out"].default = value

        assert node.inputs["number"].default == value
        assert listener.inputs["number"].default == value
    assert source.outputs["out"].default is NOTHING
    assert [each.status for each in (source, node, listener)] == ["completed"] * 3


def test_case_081(node: flow.Node) -> None:
    port = node.inputs["number"]
    port.default = "d"
    assert [port.read() for _ in range(3)] == ["d", "d", "d"]
    port.write("p")
    assert [port.read() for _ in range(2)] == ["p", "d"]


def test_case_082(node: flow.Node) -> None:
    port = node.inputs["number"]
    port.default = "d"
    port.write_many([1, 2])

    assert list(port) == [1, 2]
    assert list(port) == []


def test_case_083() -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", Double, run=False)
    with flow.group(notify=False):
        child.inputs["number"].write(1)
        child.outputs["out"].write(1)
    assert (parent.status, child.status) == ("completed", "completed")

    child.inputs["number"].write(1)
    assert (parent.status, child.status) == ("completed", "queued")
    other = parent.spawn("other", Double, run=False)
    other.outputs["out"].write(1)
    assert (parent.status, other.status) == ("queued", "completed")
    testing.drain()
    assert (parent.status, child.status) == ("completed", "completed")

    target = flow.start(Double, run=False)
    other.outputs["out"].read()
    other.outputs["out"].connect(target.inputs["number"])
    other.outputs["out"].write(1)
    assert (parent.status, other.status, target.status) == ("completed", "completed", "queued")


@pytest.mark.parametrize("status", ["failed", "terminating", "terminated"])
def test_case_084(status: str) -> None:
    node = in_status(status)
    node.inputs["a"].write(1)
    testing.drain()

    assert "perform" not in Recorder.calls
    assert node.inputs["a"].size == 1


def test_case_085() -> None:
    node = flow.start(Recorder, run=False)
    node.state.set(perform=["read_and_raise"])
    node.inputs["a"].write_many([1, 2])
    testing.drain(errors=False)

    assert node.status == "failed"
    assert node.inputs["a"].peek(5) == [1, 2]
    assert node.outputs["out"].size == 0


def test_messages_that_code_cannot_take_go_to_the_port_error() -> None:
    node = flow.start(Poisoned, data={"x": [1, "bad", 3]})
    testing.drain(errors=False)

    assert node.status == "completed"
    assert list(node.outputs["out"]) == [1, 3]
    assert list(node.outputs["error"]) == [{"data": "bad", "error": "CodeError: cannot take it"}]


@pytest.mark.usefixtures("all_is_logged")
def test_case_086(node: flow.Node, logged: Callable[[], list[Any]]) -> None:
    other = flow.start(Sum, run=False)

    assert node.inputs["number"].move_to(other.inputs["number"]) == []
    assert other.status == "completed"
    assert logged() == []
    node.outputs["out"].write(1)
    node.outputs["out"].move_to(other.inputs["number"])
    assert len(logged()) == 2  # what was written, and what was moved


def test_case_087(node: flow.Node) -> None:
    node.pause()
    targets = [flow.start(Sum, run=False).inputs["number"] for _ in range(2)]
    targets[0].default = "d"
    node.inputs["number"].write_many([1, 2])

    assert node.inputs["number"].move_to(*targets) == [1, 2]
    assert node.inputs["number"].size == 0
    assert [targets[0].read() for _ in range(3)] == [1, 2, "d"]
    assert [targets[1].read() for _ in range(3)] == [1, 2, NOTHING]


def test_case_088(node: flow.Node) -> None:
    target = flow.start(Sum, run=False)
    node.inputs["number"].default = 7
    node.inputs["number"].move_to(target.inputs["number"])
    assert target.inputs["number"].default == 7
    assert target.status == "queued"
    testing.drain()
    node.inputs["number"].move_to(target.inputs["number"])
    assert target.status == "completed"


def test_case_089(node: flow.Node) -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", Double, run=False)
    node.pause()
    node.inputs["number"].write(1)
    node.inputs["number"].move_to(child.inputs["number"])
    assert (parent.status, child.status) == ("completed", "queued")

    node.inputs["number"].write(2)
    node.inputs["number"].move_to(child.outputs["out"])
    assert parent.status == "queued"
    with flow.group(notify=False):
        other = flow.start(Double, run=False)
        node.inputs["number"].write(3)
        node.inputs["number"].move_to(other.inputs["number"])
    assert other.status == "completed"


def test_case_090(node: flow.Node, logged: Callable[[], list[Any]]) -> None:
    listener = flow.start(Sum, inputs={"number": {"channels": ["/news"]}}, run=False)
    target = flow.start(Sum, outputs={"out": {"channels": ["/news"]}}, run=False)
    node.pause()
    with flow.group(log=False):
        node.inputs["number"].write_many([1, 2])
    assert logged() == []
    node.inputs["number"].move_to(target.outputs["out"])

    [entry] = logged()
    assert entry["read"] == [{"node": node.pk, "input": "number", "data": [1, 2]}]
    assert entry["write"] == [{"node": target.pk, "output": "out", "data": [1, 2]}]
    assert listener.inputs["number"].peek(3) == [1, 2]


def test_types_are_checked_where_messages_are_written() -> None:
    node = flow.start(Double, run=False)
    for wrong in ("1", 1.5, None, True, [1]):
        with pytest.raises(flow.PortTypeError, match="takes int"):
            node.inputs["number"].write(wrong)
    source = flow.start(Sum, run=False)
    source.outputs["out"].connect(node.inputs["number"])
    with pytest.raises(flow.PortTypeError, match="takes int"):
        source.outputs["out"].write("text")
    assert node.inputs["number"].size == 0


def test_a_message_of_another_type_than_the_port_takes_now_fails_the_run(node: flow.Node) -> None:
    """A release, or `set_ports`, has narrowed the type since it was written."""
    port = node.inputs["number"]
    node.pause()
    port.write_many(["text", 1])
    node.set_ports(inputs={"number": {"type": "int"}})
    node.resume()
    with pytest.raises(flow.PortTypeError, match="'number' takes int, and was given str 'text'"):
        testing.drain()

    assert (node.status, port.peek(3)) == ("failed", ["text", 1])
    assert port.read() == "text"
    node.run(force=True)
    testing.drain()
    assert node.outputs["out"].read() == 1


def test_messages_that_cannot_be_stored_are_refused(node: flow.Node, settings: Any) -> None:
    port = node.inputs["number"]
    for wrong in (object(), float("nan"), "\0", "\ud800", {1, 2}):
        with pytest.raises(flow.InvalidPortError, match="not JSON"):
            port.write(wrong)
    deep: list[Any] = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with pytest.raises(flow.InvalidPortError, match=f"nested deeper than {MAX_DEPTH} levels"):
        port.write(deep)
    with pytest.raises(flow.MessageTooLargeError, match="MAX_MESSAGE_BYTES"):
        port.write("x" * 1_048_577)
    assert port.size == 0


@pytest.mark.conformance
def test_a_memory_port_keeps_the_last_message() -> None:
    node = flow.start(Both, inputs={"a": {}, "b": {"mode": "memory"}}, data={"a": [1], "b": [7, 8]})
    testing.drain()
    assert list(node.outputs["out"]) == [[1, 8]]
    node.inputs["a"].write(2)
    testing.drain()
    assert list(node.outputs["out"]) == [[2, 8]]
    node.inputs["b"].write(9)
    assert node.inputs["b"].default == 9


@pytest.mark.conformance
def test_connections_deliver_for_good() -> None:
    source, targets = flow.start(Sum, run=False), [flow.start(Sum, run=False) for _ in range(2)]
    source.outputs["out"].write("before")
    source.outputs["out"].connect(*[target.inputs["number"] for target in targets])
    for target in targets:
        target.pause()
    source.outputs["out"].write("after")

    assert [target.inputs["number"].peek(3) for target in targets] == [["before", "after"]] * 2
    assert source.outputs["out"].size == 0
    source.outputs["out"].disconnect(targets[0].inputs["number"])
    source.outputs["out"].write("later")
    assert [target.inputs["number"].size for target in targets] == [2, 3]


def test_rings_of_ports_are_refused() -> None:
    a, b = flow.start(Sum, run=False), flow.start(Sum, run=False)
    a.outputs["out"].connect(b.outputs["out"])

    for source, target in ((b, a), (a, a)):
        with pytest.raises(flow.FamilyError, match="round for ever"):
            source.outputs["out"].connect(target.outputs["out"])


@pytest.mark.conformance
def test_a_run_waits_for_its_answer_with_all_that_it_did() -> None:
    import hipq_django as hipq

    node = flow.start(Asks, data={"question": ["why"]})
    testing.drain()
    assert node.status == "running"
    assert node.inputs["question"].size == 1
    assert node.state.all() == {}
    hipq.complete("t.asks", "question-why", "because")
    testing.drain()

    assert node.status == "completed"
    assert node.inputs["question"].size == 0
    assert node.outputs["answer"].read() == ["why", "because"]
    assert node.state.all() == {"asked": "why"}


@pytest.mark.parametrize("messages", [3, 1_500])
def test_a_run_reads_no_further_than_what_lay_there_when_it_looked_first(messages: int) -> None:
    node = flow.start(Page, data={"number": range(messages)})
    testing.drain(timeout=60)

    came = node.outputs["out"].peek(messages + 2)
    assert [number for number, _, _ in came] == [*range(messages), -1]
    assert all(number == last for number, last, _ in came)
    runs = [run for _, _, run in came]
    assert len(set(runs[:-1])) == 1
    assert runs[-1] != runs[0]


@pytest.fixture
def doubling() -> list[list[flow.Port]]:
    """Pairs of ports, each of which is connected to both of the next pair."""
    node = flow.start("flow.placeholder", run=False)
    pairs = [[node.inputs[f"{side}{place}"] for side in "ab"] for place in range(40)]
    for sources, targets in pairwise(pairs):
        for source in sources:
            source.connect(*targets)
    return pairs


def test_a_message_that_would_become_too_many_is_refused(doubling: list[list[flow.Port]]) -> None:
    with pytest.raises(flow.FlowError, match="leads to more than 10,000 ports"):
        doubling[0][0].write("too much")

    assert not Message.objects.exists()
    doubling[-1][0].write("all right")
