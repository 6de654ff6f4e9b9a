"""Cases 91 to 99: groups, the log, context and channels."""

from collections.abc import Callable
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import LogEntry
from tests.testapp.flows import CodeError, Double, Recorder, Script, Sum, add

pytestmark = pytest.mark.django_db


@pytest.fixture
def node() -> flow.Node:
    return flow.start(Sum, run=False)


def test_case_091(node: flow.Node, logged: Callable[[], list[Any]]) -> None:
    node.pause()
    port, out = node.inputs["number"], node.outputs["out"]
    with flow.group():
        port.write(1)
        with flow.group():
            port.write(2)
        out.write(3)
        assert port.read() == 1
    [entry] = logged()
    assert entry["read"] == [{"node": node.pk, "input": "number", "data": [1]}]
    assert entry["write"] == [
        {"node": node.pk, "input": "number", "data": [1, 2]},
        {"node": node.pk, "output": "out", "data": [3]},
    ]
    with flow.group():
        pass
    with flow.group(log=False):
        port.write(4)
    list(port)
    with flow.group():
        out.read()
    assert [entry["read"][0]["data"] for entry in logged()[1:]] == [[2], [3]]


def data_entries(node: flow.Node) -> list[tuple[Any, Any]]:
    """Return what the log says that was read and written, line by line."""
    rows = LogEntry.objects.filter(node=node, entry__has_key="read").order_by("pk")
    return [
        (
            [line["data"] for line in row.entry["read"]],
            [line["data"] for line in row.entry["write"]],
        )
        for row in rows
    ]


@pytest.mark.usefixtures("all_is_logged")
def test_each_call_from_outside_is_a_group(node: flow.Node) -> None:
    node.pause()
    other = flow.start(Sum, run=False)
    node.inputs["number"].write_many([1, 2])
    node.inputs["number"].read()
    node.inputs["number"].move_to(other.inputs["number"])

    assert data_entries(node) == [([], [[1, 2]]), ([[1]], [])]
    [moved] = LogEntry.objects.filter(node=None)
    assert [line["data"] for line in moved.entry["read"] + moved.entry["write"]] == [[2], [2]]


@pytest.mark.usefixtures("all_is_logged")
def test_a_run_is_a_group_and_its_tuples_are_others(script: Script) -> None:
    def perform(run: Any) -> None:
        run.out.write("before")
        with flow.group():
            run.out.write("in a group")
        for item in run.each("item"):
            run.out.write(item)
            if item == 2:
                break
        with flow.group(log=False):
            run.out.write("secretly")
        run.out.write("after")

    script.perform = perform
    node = flow.start("t.scripted", data={"item": [1, 2]})
    LogEntry.objects.all().delete()
    testing.drain()

    assert data_entries(node) == [
        ([], [["before", "in a group"]]), ([[1]], [[1]]), ([[2]], [[2, "after"]]),
    ]  # fmt: skip
    assert all("run" in row.entry for row in LogEntry.objects.filter(node=node))


def test_a_component_may_want_its_data_to_be_logged() -> None:
    node = flow.start("t.logged", data={"x": [1]})
    flow.start(add, data={"x": [1]})
    testing.drain()

    assert data_entries(node) == [([], [[1]]), ([[1]], [[1]])]
    assert not LogEntry.objects.exclude(node=node).exists()


def test_a_listener_gets_what_is_read_and_written_and_nothing_is_stored(script: Script) -> None:
    script.perform = lambda run: run.out.write(run.item.read())
    listener = observer("/flow/log")
    listener.pause()
    node = flow.start("t.scripted", data={"item": [1]}, alias="told")
    node.outputs["out"].connect(listener.inputs["item"])
    testing.drain()

    said = [(entry["read"], entry["write"]) for entry in heard_by(listener) if entry != 1]
    item, out = {"node": node.pk, "input": "item"}, {"node": node.pk, "output": "out"}
    assert said == [
        ([], [{**item, "data": [1]}]), ([{**item, "data": [1]}], [{**out, "data": [1]}]),
    ]  # fmt: skip
    assert not LogEntry.objects.exists()


@pytest.mark.conformance
def test_case_092(node: flow.Node, logged: Callable[[], list[Any]]) -> None:
    value = {"a": [1]}
    with flow.group():
        node.outputs["out"].write(value)
        value["a"].append(2)

    [entry] = logged()
    assert entry["write"][0]["data"] == [{"a": [1]}]


def test_case_093() -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", Double, run=False)
    with flow.group(notify=False):
        with flow.group(as_default=True):
            child.inputs["number"].write(1)
        assert child.inputs["number"].default == 1
        child.inputs["number"].write(2)
        with flow.group(notify=True):
            assert child.status == "completed"
            child.inputs["number"].write(3)
    assert child.status == "queued"
    assert child.inputs["number"].size == 2


def test_case_094(logged: Callable[[], list[Any]]) -> None:
    with flow.context(user="ann"):
        flow.log({"what": "begin"})
        with flow.context(step=2):
            flow.log("text")
        flow.log(CodeError("broken"))
    flow.log({"what": "end"})

    entries = logged()
    assert all(entry.pop("timestamp") for entry in entries)
    assert entries == [
        {"user": "ann", "what": "begin"},
        {"user": "ann", "step": 2, "message": "text"},
        {"user": "ann", "error": "CodeError: broken"},
        {"what": "end"},
    ]


def test_case_095(node: flow.Node) -> None:
    node.pause()
    node.inputs["number"].channels = ["/a"]
    with flow.context(user="ann"):
        node.outputs["out"].write(1)
        node.outputs["out"].default = 2
        flow.publish("/a/b", 3)

    packet = node.outputs["out"].packet()
    default = node.outputs["out"].packet()
    assert packet is not None
    assert packet.context == {"user": "ann"}
    assert default is not None
    assert default.context == {"user": "ann"}
    published = node.inputs["number"].packet()
    assert published is not None
    assert published.context == {"user": "ann", "channel": "/a/b"}


def test_case_096() -> None:
    deep = flow.start(Sum, inputs={"number": {"channels": ["/n/c"]}}, run=False)
    above = flow.start(Sum, inputs={"number": {"channels": ["/n"]}}, run=False)
    other = flow.start(Sum, inputs={"number": {"channels": ["/n/other"]}}, run=False)
    flow.publish("/n/c", 5)

    assert [node.status for node in (deep, above, other)] == ["queued", "queued", "completed"]
    assert [node.inputs["number"].peek(2) for node in (deep, above, other)] == [[5], [5], []]


def test_case_097(node: flow.Node) -> None:
    gone = flow.start(Sum, inputs={"number": {"channels": ["/n"]}}, run=False)
    gone.terminate()
    testing.drain()
    gone.delete()
    node.inputs["number"].channels = ["/n"]
    node.inputs["number"].channels = []
    flow.publish("/n", 5)

    assert node.inputs["number"].size == 0
    assert (node.status, list(node.inputs["number"].channels)) == ("completed", [])


def test_case_098() -> None:
    ins = [{"number": {"channels": [name]}} for name in ("/1", "/2", "/2", "/3")]
    outs = [{"out": {"channels": [name]}} for name in ("/2", "/3", "/3")]
    nodes = [
        flow.start("t.sum_once", inputs=i, outputs=o, run=False)
        for i, o in zip(ins, [*outs, {}], strict=True)
    ]
    for number in (1, 2, 4):
        flow.publish("/1", number)
    testing.drain()

    assert sum(nodes[3].outputs["out"]) == 14


def observer(*channels: str) -> flow.Node:
    """Return a node that listens, and does not fail at what it hears."""
    return flow.start("t.relay", inputs={"item": {"channels": list(channels)}}, run=False)


def heard_by(node: flow.Node) -> list[Any]:
    """Return what a node of `observer` has heard: what it has handed on, and what is unread."""
    return [*node.outputs["out"].peek(1_000), *node.inputs["item"].peek(1_000)]


def test_case_099() -> None:
    listener = observer("/flow", "/")
    node = flow.start(Recorder)
    node.state.set(perform=["raise"])
    flow.log({"a": 1})
    testing.drain(errors=False)

    assert (listener.status, node.status) == ("completed", "failed")
    said = heard_by(listener)
    assert [entry["status"] for entry in said if "status" in entry] == ["queued", "failed"]
    assert [entry["a"] for entry in said if "a" in entry] == [1]
    [error] = [entry for entry in said if "error" in entry]
    assert error["node"] == node.pk


@pytest.mark.parametrize("channel", ["/", "/flow", "/flow/node", "own"])
@pytest.mark.usefixtures("all_is_logged")
def test_what_observers_do_is_not_published(channel: str) -> None:
    node = observer()
    node.inputs["item"].channels = [f"/flow/node/{node.pk}" if channel == "own" else channel]
    other = observer("/flow")
    node.run()
    node.inputs["item"].write(1)
    testing.drain()

    assert (node.status, heard_by(node)) == ("completed", [1])
    assert heard_by(other) == []
    assert LogEntry.objects.filter(node=node).exists()


def test_an_observer_does_not_run_its_parent_for_ever() -> None:
    parent = flow.start("t.parent_of_listener")
    testing.drain()

    assert parent.status == "completed"
    assert parent.children["listener"].state["heard"] > 0


@pytest.mark.parametrize("channel", ["a/b", "", None, "x" * 300, "//a", "/a//b"])
def test_channels_begin_with_a_slash(channel: Any) -> None:
    with pytest.raises(flow.InvalidPortError, match="begins with /"):
        flow.publish(channel, 1)
