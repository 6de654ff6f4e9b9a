"""Cases 11 to 21: how nodes begin, and what is published of them."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from tests.testapp.flows import Double, Quiet, Recorder, Sum

pytestmark = pytest.mark.django_db


def test_case_011() -> None:
    with pytest.raises(flow.UnknownComponentError, match=r"t\.double"):
        flow.start("t.duoble")
    assert not flow.Node.objects.exists()


def test_case_012() -> None:
    node = flow.start(Double)

    assert node.status == "queued"
    assert testing.due(node) == 1
    info = node.info
    assert info["queue"] == "default"
    assert info["component"] == "t.double"
    assert info["args"] == []
    assert abs(info["create_time"] - timezone.now()) < timedelta(seconds=30)
    assert info["created_by"] == ""
    assert info["ran_at"] is None


def test_case_013() -> None:
    flow.start(Recorder, args=[1, 2])
    testing.drain()

    assert Recorder.seen[0][0] == (1, 2)


def test_case_014() -> None:
    node = flow.start(Double, by="test:x")
    child = node.spawn("child", Double, by="somebody else")

    assert node.info["created_by"] == "test:x"
    assert child.info["created_by"] == f"node:{node.pk}"


def test_case_015() -> None:
    parent = flow.start(Double)

    with pytest.raises(flow.FamilyError, match="1 to 200 characters"):
        flow.start(Double, parent=parent)
    with pytest.raises(flow.FamilyError, match="needs a parent"):
        flow.start(Double, name="child")
    assert flow.Node.objects.count() == 1


def test_case_016() -> None:
    parent = flow.start(Double)
    child = parent.spawn("child", Double)

    with pytest.raises(flow.NameTakenError) as caught:
        parent.spawn("child", Double)
    assert caught.value.node == child
    assert flow.Node.objects.count() == 2


def test_case_017() -> None:
    parent = flow.start(Double)
    child = flow.start(Double, parent=parent, name="c")

    assert child.parent == parent
    assert parent.child("c") == child
    assert parent.children == {"c": child}
    assert (testing.due(parent), testing.due(child)) == (1, 1)


@flow.component("t.elsewhere", instance="other")
class Elsewhere(flow.Component):
    """Is run by the workers of another instance."""

    def perform(self) -> None:
        pass


@pytest.mark.django_db(databases=["default", "other"])
def test_a_child_is_of_the_instance_of_its_parent() -> None:
    parent = flow.start("t.elsewhere", instance="other", run=False)
    child = parent.spawn("child", "t.elsewhere")

    assert child.instance == "other"
    assert parent.children == {"child": child}
    spawns: list[Callable[[], object]] = [
        lambda: flow.start("t.double", parent=parent, name="second"),
        lambda: flow.start({"nodes": {}}, parent=parent, name="second"),
        lambda: parent.spawn("second", "t.double", instance="default"),
    ]
    for spawn in spawns:
        with pytest.raises(flow.FamilyError, match="is of instance 'other'"):
            spawn()
    assert not flow.Node.objects.using("default").exists()


@pytest.mark.conformance
def test_case_018() -> None:
    now = timezone.now()
    later = flow.start(Double, at=now + timedelta(hours=1))
    past = flow.start(Double, at=now - timedelta(hours=1))

    assert (later.status, testing.due(later)) == ("queued", 0)
    assert testing.due(past) == 1
    assert later.status == "queued"
    with hipq.testing.travel(hours=2):
        assert testing.due(later) == 1


def test_case_019() -> None:
    node = flow.start(
        Sum, inputs={"number": {"default": 7}, "more": {}}, outputs={"extra": {}}, run=False
    )

    assert node.inputs["number"].read() == 7
    assert list(node.inputs) == ["number", "more"]
    assert list(node.outputs) == ["out", "extra"]


@pytest.fixture
def listening() -> Callable[[flow.Node], list[str]]:
    """Return what lets a node's status messages come to another node."""
    listener = flow.start(Sum, run=False)

    def heard(node: flow.Node) -> list[str]:
        port = listener.inputs["number"]
        if not port.channels:
            port.channels = [f"/flow/node/{node.pk}"]
            listener.pause()
        return [message.get("status", "deleted") for message in port.peek(100)]

    return heard


def test_case_020(listening: Callable[[flow.Node], list[str]]) -> None:
    node = flow.start(Recorder, run=False)
    listening(node)

    node.run()
    testing.drain()
    assert listening(node) == ["queued", "completed"]
    node.state.set(perform=["suspend"])
    node.run()
    node.run()
    testing.drain()
    assert listening(node)[2:] == ["queued", "suspended"]
    node.terminate()
    testing.drain()
    assert listening(node)[4:] == ["terminating", "terminated"]
    node.run(force=True)
    node.state.set(perform=["raise"])
    testing.drain(errors=False)
    assert listening(node)[6:] == ["queued", "failed"]
    node.terminate(delete=True)
    testing.drain()
    assert listening(node)[8:] == ["terminating", "terminated", "deleted"]


def test_case_021(listening: Callable[[flow.Node], list[str]]) -> None:
    node = flow.start(Quiet, run=False)
    listening(node)
    node.run()
    testing.drain()

    assert listening(node) == []
