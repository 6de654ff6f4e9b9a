"""Cases 63 to 71: parents, children and state."""

from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from tests.flow.conftest import in_status
from tests.testapp.flows import Double, Fib, Script

pytestmark = pytest.mark.django_db


def test_case_063() -> None:
    parent, orphan, owned = flow.start(Double), flow.start(Double), flow.start(Double)
    parent.adopt(orphan, "orphan")
    assert flow.get(orphan.pk).parent == orphan.parent == parent
    parent.adopt(owned, "owned")

    for node, name, error in (
        (parent, "self", flow.FamilyError),
        (owned, "again", flow.FamilyError),
        (flow.start(Double), None, flow.FamilyError),
        (flow.start(Double), "", flow.FamilyError),
        (flow.start(Double), "owned", flow.NameTakenError),
    ):
        with pytest.raises(error):
            parent.adopt(node, name)  # type: ignore[arg-type]  # what is refused
    assert parent.children == {"orphan": orphan, "owned": owned}


def test_case_064() -> None:
    root = flow.start(Double)
    child = root.spawn("child", Double)
    below = child.spawn("below", Double)

    with pytest.raises(flow.FamilyError, match="above it"):
        below.adopt(root, "root")


def test_case_065() -> None:
    parent, stranger = flow.start(Double), flow.start(Double)
    one, two = parent.spawn("one", Double), parent.spawn("two", Double)
    parent.disown("one")
    parent.disown(two)

    assert parent.children == {}
    assert flow.get(one.pk).parent is None
    for unknown in ("one", stranger):
        with pytest.raises(flow.FamilyError, match="has no child"):
            parent.disown(unknown)


def test_case_066() -> None:
    assert flow.start(Double).child("missing") is None


@pytest.mark.conformance
def test_case_067() -> None:
    node = flow.start(Fib, data={"n": [6]})
    testing.drain(timeout=60)

    assert node.outputs["out"].read() == 8
    assert node.status == "completed"


def test_case_068() -> None:
    node = flow.start("t.parent_of_sum")
    testing.drain()

    assert node.status == "completed"
    assert node.state["result"] == 11


def test_a_tree_is_not_deeper_than_the_setting_allows() -> None:
    node = flow.start(Double, run=False)
    for _ in range(19):
        node = node.spawn("child", Double, run=False)
    with pytest.raises(flow.FamilyError, match="MAX_DEPTH"):
        node.spawn("child", Double)


def test_case_069() -> None:
    node = flow.start(Double)
    deep = {"list": [1, {"x": None}], "text": "é", "float": 1.5}
    node.state.set(a=1, b=2)
    node.state.set({"b": deep, "strange key!": True})

    assert node.state.all() == {"a": 1, "b": deep, "strange key!": True}
    assert node.state.get("missing") is None
    assert flow.get(node.pk).state["b"] == deep
    assert node.state.change(lambda state: {**state, "a": state["a"] + 1})["a"] == 2


def test_case_070() -> None:
    node = flow.start(Double)
    node.state.set(a=1, b=2)
    node.state.unset("a", "unknown")

    assert node.state.all() == {"b": 2}


def test_case_071() -> None:
    node = in_status("terminated")
    node.delete()

    for change in (lambda: node.state.set(a=1), lambda: node.state.unset("a"), node.state.all):
        with pytest.raises(flow.NodeDeletedError):
            change()


@pytest.mark.parametrize("key", ["flow.spec", "flow.each:a,b"])
def test_what_flows_keep_in_a_state_stays(key: str, script: Script) -> None:
    graph = flow.start({"nodes": {"a": {"component": "t.double"}}})
    spec = graph.graph

    def perform(run: Any) -> None:
        run.state.unset(key)

    for change in (
        lambda: graph.state.set({key: 1}),
        lambda: graph.state.unset("a", key),
        lambda: graph.state.change(lambda state: {key: 1}),
    ):
        with pytest.raises(flow.InvalidPortError, match=r"does not begin with 'flow\.'"):
            change()
    script.perform = perform
    with pytest.raises(flow.InvalidPortError, match=r"does not begin with 'flow\.'"):
        testing.run_inline(flow.start("t.scripted", run=False))
    assert graph.graph == spec
