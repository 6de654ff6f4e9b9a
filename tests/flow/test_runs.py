"""What a run does counts up to its last mark, and is seen when its attempt has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from tests.testapp.flows import CodeError, Double, Script

pytestmark = pytest.mark.django_db

Hear = Callable[[str], Callable[[], list[Any]]]


@pytest.mark.parametrize("error", [CodeError("as asked"), hipq.Snooze(5)], ids=["retry", "snooze"])
def test_what_complete_tuples_did_counts_before_the_next_attempt(
    error: Exception, script: Script, hear: Hear
) -> None:
    heard, seen = hear("/done"), list[Any]()
    node = flow.start("t.scripted", data={"item": [1, 2, 3]})

    def there() -> tuple[Any, ...]:
        ports = node.inputs["item"].peek(9), node.outputs["out"].peek(9)
        return *ports, sorted(node.children), node.state.get("last"), heard()

    def perform(run: Any) -> None:
        seen.append(there())
        for item in run.each("item"):
            run.out.write(item)
            run.state.set(last=item)
            run.spawn(f"child {item}", Double, run=False)
            run.publish(item, "/done")
            if item == 2 and len(seen) == 1:
                raise error

    script.perform = perform
    testing.drain(errors=False)
    with hipq.testing.travel(seconds=6):
        testing.drain()

    assert seen == [([1, 2, 3], [], [], None, []), ([2, 3], [1], ["child 1"], 1, [1])]
    children = ["child 1", "child 2", "child 3"]
    assert there() == ([], [1, 2, 3], children, 3, [1, 2, 3])


def test_a_run_sees_its_state_but_neither_its_messages_nor_its_children(script: Script) -> None:
    seen: list[Any] = []

    def perform(run: Any) -> None:
        if not seen:
            run.item.write("own")
            run.out.write("out")
            run.spawn("child", Double, run=False)
        run.state.set(runs=run.state.get("runs", 0) + 1)
        child = run.child("child")
        seen.append((list(run.item), run.out.peek(2), child and child.name, run.state["runs"]))

    script.perform = perform
    flow.start("t.scripted", data={"item": ["first"]})
    testing.drain()

    assert seen == [(["first"], [], None, 1), (["own"], ["out"], "child", 2)]


@pytest.fixture
def tree() -> tuple[flow.Node, flow.Node]:
    """A node, and its child, which has never run."""
    root = flow.start(Double, run=False)
    return root, root.spawn("child", "t.recorder", run=False)


def test_a_tree_is_idle_while_no_run_is_due(tree: tuple[flow.Node, flow.Node]) -> None:
    root, node = tree
    assert root.is_idle()
    for verb in (node.run, node.terminate):
        verb()
        assert not root.is_idle()
        testing.drain()
        assert root.is_idle()


def test_a_tree_is_idle_while_nothing_is_unread_that_may_be_read(
    tree: tuple[flow.Node, flow.Node],
) -> None:
    root, node = tree
    node.outputs["out"].write(1)
    testing.drain()
    assert root.is_idle()
    node.pause()
    node.inputs["a"].write(1)
    testing.drain()
    assert not root.is_idle()
    node.state.set(perform=["raise"])
    node.resume()
    testing.drain(errors=False)

    assert (node.status, node.inputs["a"].size) == ("failed", 1)
    assert root.is_idle()


@pytest.mark.parametrize("fails", [1, 2], ids=["at first", "for good"])
@pytest.mark.parametrize(("when", "later"), [({}, 0), ({"wait": 60}, 1)], ids=["now", "later"])
def test_the_next_attempt_is_the_run_that_a_failed_one_has_asked_for(
    when: dict[str, float], later: int, fails: int, script: Script
) -> None:
    """If there is none, nothing follows."""
    calls: list[Any] = []

    def perform(run: Any) -> None:
        calls.append(None)
        if len(calls) <= fails:
            run.run(**when)
            raise CodeError("as asked")

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain(errors=False)
    assert len(calls) == 2
    with hipq.testing.travel(seconds=61):
        testing.drain()

    assert len(calls) == 2 + (later if fails == 1 else 0)
    assert node.status == ("completed" if fails == 1 else "failed")
