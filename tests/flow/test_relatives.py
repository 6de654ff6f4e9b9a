"""What a run does to its parent and children counts when it ends, as all that it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.models import Job
from tests.testapp.flows import CodeError, Double, Recorder, Script

pytestmark = pytest.mark.django_db


class Verb(NamedTuple):
    """What a run does to its child or its graph, and what shows that it was done."""

    act: Callable[[Any], Any]
    look: Callable[[flow.Node], Any]
    before: Any
    after: Any
    prepare: Callable[[flow.Node], Any] = lambda _: None
    of: str = "child"


def names(ports: Any) -> list[str]:
    return sorted(ports)


def end(node: flow.Node) -> None:
    node.terminate(recursive=True)
    testing.drain()
    Recorder.calls.clear()


EMPTY: dict[str, Any] = {"nodes": {}}
VERBS = {
    "state.set": Verb(
        lambda node: node.state.set({"a": 1}, b=2),
        lambda node: node.state.all(),
        {"a": 0, "c": 3},
        {"a": 1, "b": 2, "c": 3},
        lambda node: node.state.set(a=0, c=3),
    ),
    "aliases.add": Verb(
        lambda node: node.aliases.add("new"),
        lambda node: list(node.aliases),
        ["child"],
        ["child", "new"],
    ),
    "set_ports": Verb(
        lambda node: node.set_ports(inputs={"x": {"type": int, "default": 5}}),
        lambda node: (names(node.inputs), names(node.outputs)),
        (["a", "b"], ["out"]),
        (["a", "b", "x"], ["out"]),
    ),
    "run": Verb(
        lambda node: node.run(),
        lambda node: list(Recorder.calls),
        [],
        ["startup", "perform"],
    ),
    "terminate": Verb(
        lambda node: node.terminate(), lambda node: node.status, "completed", "terminated"
    ),
    "delete": Verb(lambda node: node.delete(), lambda node: node.exists(), True, False, end),
    "pause": Verb(lambda node: node.pause(), lambda node: flow.get(node.pk).paused, False, True),
    "spawn": Verb(
        lambda node: node.spawn("new", Double, run=False, data={"number": [1]}),
        lambda node: sorted(node.children),
        ["old"],
        ["new", "old"],
    ),
    "adopt": Verb(
        lambda node: node.adopt(flow.get("orphan"), "new"),
        lambda node: sorted(node.children),
        ["old"],
        ["new", "old"],
    ),
    "disown": Verb(
        lambda node: node.disown("old"), lambda node: sorted(node.children), ["old"], []
    ),
    "apply": Verb(
        lambda node: node.apply({"nodes": {"n": {"component": "t.double"}}}),
        lambda node: (sorted(node.children), node.graph["nodes"]),
        ([], {}),
        (["n"], {"n": {"component": "t.double"}}),
        of="graph",
    ),
}


def some(*names: str) -> pytest.MarkDecorator:
    """Return the verbs as parameters; all but these are for the night."""
    later = {name: () if name in names else pytest.mark.nightly for name in VERBS}
    verbs = [pytest.param(verb, id=name, marks=later[name]) for name, verb in VERBS.items()]
    return pytest.mark.parametrize("verb", verbs)


@pytest.fixture
def root() -> flow.Node:
    """A node that does what the test says, with a child and a graph; and an orphan."""
    node = flow.start("t.scripted", run=False)
    child = node.spawn("child", Recorder, alias="child", run=False)
    child.spawn("old", Recorder, run=False)
    node.spawn("graph", EMPTY, alias="graph", run=False)
    flow.start(Double, alias="orphan", run=False)
    return node


def relative(node: flow.Node, name: str) -> flow.Node:
    found = node.child(name)
    assert found is not None
    return found


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after an answer"])
@some(*VERBS)
def test_what_a_run_does_to_a_relative_is_done_when_it_ends(
    verb: Verb, waits: bool, root: flow.Node, script: Script
) -> None:
    node, seen = relative(root, verb.of), list[Any]()
    verb.prepare(node)

    def perform(run: Any) -> Any:
        script.perform = None
        verb.act(run.child(verb.of))
        seen.append(verb.look(node))
        run.job.set_key("key")
        return hipq.WAIT if waits else None

    script.perform = perform
    testing.run_inline(root)
    testing.drain()
    if waits:
        assert verb.look(node) == verb.before
        hipq.complete("t.scripted", "key", "yes")
        testing.drain()

    assert seen == [verb.before]
    assert verb.look(node) == verb.after


@some("state.set", "spawn", "delete")
def test_what_a_run_does_to_a_relative_is_never_done_if_it_fails(
    verb: Verb, root: flow.Node, script: Script
) -> None:
    node = relative(root, verb.of)
    verb.prepare(node)

    def perform(run: Any) -> None:
        verb.act(run.child(verb.of))
        raise CodeError("as asked")

    script.perform = perform
    testing.run_inline(root, errors=False)
    testing.drain(errors=False)

    assert root.status == "failed"
    assert verb.look(node) == verb.before


def test_a_run_publishes_for_a_relative_when_it_ends(
    root: flow.Node, script: Script, hear: Callable[[str], Callable[[], list[Any]]]
) -> None:
    heard = hear(f"/flow/node/{relative(root, 'child').pk}")

    def perform(run: Any) -> None:
        run.child("child").publish("hello")
        assert heard() == []

    script.perform = perform
    testing.run_inline(root)

    assert heard() == ["hello"]


def test_a_run_that_terminates_the_tree_it_is_in_shuts_down_itself(script: Script) -> None:
    root = flow.start(Double, run=False)
    node = root.spawn("node", "t.scripted", run=False)

    def perform(run: Any) -> None:
        run.state.set(done=True)
        run.parent.terminate(recursive=True)

    script.perform = perform
    testing.run_inline(node)
    assert (root.status, node.status) == ("terminating", "terminating")
    testing.drain()

    assert root.is_terminated()
    assert node.state.all() == {"done": True}


def test_a_run_that_reaches_itself_as_a_relative_overwrites_nothing(script: Script) -> None:
    root = flow.start(Double, run=False)
    node = root.spawn("node", "t.scripted", run=False)

    def perform(run: Any) -> None:
        run.state.set(a=1)
        run.parent.child("node").state.set(b=2)

    script.perform = perform
    testing.run_inline(node)

    assert node.state.all() == {"a": 1, "b": 2}


REFUSED: dict[str, Callable[[Any], Any]] = {
    "lock": lambda node: node.lock(5),
    "state.change": lambda node: node.state.change(dict),
}


def test_what_answers_at_once_is_refused_with_the_way_out(root: flow.Node, script: Script) -> None:
    said: dict[str, str] = {}

    def perform(run: Any) -> None:
        for name, act in REFUSED.items():
            try:
                act(run.child("child"))
            except flow.FlowError as refused:
                said[name] = str(refused)

    script.perform = perform
    testing.run_inline(root)

    pk = relative(root, "child").pk
    assert list(said) == list(REFUSED)
    for name, text in said.items():
        assert f"{name}() of node {pk} answers at once" in text
        assert f"call it on flow.get({pk})" in text


BAD: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "state": (lambda run: run.child("child").state.set(a=object()), flow.InvalidPortError),
    "alias": (lambda run: run.child("child").aliases.add("1"), flow.InvalidAliasError),
    "port": (
        lambda run: run.child("child").set_ports(inputs={"x": {"default": object()}}),
        flow.InvalidPortError,
    ),
    "spec": (lambda run: run.child("graph").apply({"nodes": 1}), flow.GraphError),
    "name": (lambda run: run.child("child").adopt(flow.get("orphan"), ""), flow.FamilyError),
}


def test_what_cannot_be_done_to_a_relative_raises_where_it_is_said(
    root: flow.Node, script: Script
) -> None:
    raised: dict[str, type[Exception]] = {}

    def perform(run: Any) -> None:
        for name, (act, _) in BAD.items():
            try:
                act(run)
            except Exception as refused:
                raised[name] = type(refused)

    script.perform = perform
    testing.run_inline(root)

    assert raised == {name: error for name, (_, error) in BAD.items()}


def test_a_run_fails_if_a_relative_cannot_be_changed_when_it_ends(
    root: flow.Node, script: Script
) -> None:
    """The name of its alias is that of another node by then."""

    def perform(run: Any) -> None:
        run.state.set(done=True)
        run.child("child").aliases.add("orphan")

    script.perform = perform
    testing.run_inline(root, errors=False)
    testing.drain(errors=False)

    assert root.status == "failed"
    assert "alias 'orphan' is that of" in Job.objects.order_by("pk").last().error  # type: ignore[union-attr]  # there is one
    assert root.state.all() == {}


# Of many children
