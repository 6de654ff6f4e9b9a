"""Cases 43 to 62: one run at a time, terminating and deleting."""

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Graph, Request
from tests.flow.conftest import Hear, in_status
from tests.testapp.flows import Asks, CannotTakeItsAnswer, Double, Recorder, Script

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]
Start = Callable[..., flow.Node]


def test_case_043() -> None:
    node = flow.start(Recorder)
    token = node.lock(60)
    testing.drain()

    assert Recorder.calls == []
    assert node.status == "queued"
    assert token is not None
    assert node.lock(60, retries=1) is None
    with hipq.testing.travel(seconds=61):
        testing.drain()
    assert Recorder.calls == ["startup", "perform"]


def test_case_044(script: Script) -> None:
    def perform(run: flow.Component) -> None:
        node = flow.get(run.node.pk)
        Recorder.calls.append("perform")
        if len(Recorder.calls) == 1:
            for _ in range(3):
                node.run()
                Recorder.seen.append((testing.due(node), node.status))

    script.perform = perform
    flow.start("t.scripted")
    testing.drain()

    assert Recorder.seen == [(1, "running")] * 3  # the one that asks
    assert Recorder.calls == ["perform"] * 2


def test_case_045(script: Script) -> None:
    tokens: list[str | None] = []
    script.perform = lambda run: tokens.append(flow.get(run.node.pk).lock(60, retries=1))
    node = flow.start("t.scripted")
    testing.drain()

    assert tokens == [None]
    assert node.lock(60) is not None


def test_case_047() -> None:
    node = flow.start(Double)

    assert node.lock(60)
    assert node.lock(60, retries=1) is None


def test_case_048() -> None:
    node = flow.start(Double)
    assert not node.refresh_lock(60)
    node.lock(60)
    assert node.refresh_lock(120)
    with hipq.testing.travel(seconds=100):
        assert node.lock(1, retries=1) is None
    with hipq.testing.travel(seconds=130):
        assert node.lock(1)


def test_case_049() -> None:
    node = flow.start(Double)
    token = node.lock(60)
    assert token

    assert not node.unlock("wrong")
    assert node.lock(60, retries=1) is None
    assert node.unlock(token)
    assert node.lock(60)


def test_case_051() -> None:
    node = in_status("completed")
    node.terminate()

    assert node.status == "terminating"
    assert testing.due(node) == 1


def test_case_052() -> None:
    node = in_status("terminated")
    node.terminate()
    testing.drain()

    assert node.status == "terminated"


def test_case_053() -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", Double, run=False)
    below = child.spawn("child", Double, run=False)
    parent.terminate()
    testing.drain()
    assert (parent.status, child.status) == ("terminated", "completed")

    parent.terminate(recursive=True)
    assert (parent.status, child.status, below.status) == (
        "terminated", "terminating", "terminating",
    )  # fmt: skip


def test_case_054() -> None:
    parent = in_status("suspended")
    node = parent.spawn("child", Recorder, run=False)
    node.terminate()
    testing.run_inline(node, queue=False)

    assert Recorder.calls == ["shutdown"]
    assert node.status == "terminated"
    assert parent.status == "queued"


def test_case_055(recorder: Start, logged: Callable[[], list[Any]]) -> None:
    node = recorder(shutdown=["raise"])
    testing.drain()
    node.terminate()
    testing.drain()

    assert node.status == "terminated"
    [entry] = logged()
    assert entry["error"] == "CodeError: as asked"


@flow.component("t.ended_meanwhile")
class EndedMeanwhile(flow.Component):
    """Somebody terminates it while it runs."""

    def perform(self) -> None:
        Recorder.calls.append("perform")
        flow.get(self.node.pk).terminate()

    def shutdown(self) -> None:
        Recorder.calls.append("shutdown")


def test_case_056() -> None:
    node = flow.start(EndedMeanwhile)
    testing.drain()

    assert Recorder.calls == ["perform", "shutdown"]
    assert node.status == "terminated"


def test_case_057() -> None:
    parent = flow.start(Double)
    child = parent.spawn("child", Double)
    assert not parent.is_terminated()
    parent.terminate()
    testing.drain()
    assert not parent.is_terminated()
    child.terminate()
    testing.drain()
    assert parent.is_terminated()


def test_case_058() -> None:
    parent = flow.start(Double)
    parent.spawn("child", Double)

    assert parent.delete() is False
    parent.terminate()
    testing.drain()
    assert parent.delete() is False
    assert parent.exists()


@pytest.fixture
def tree() -> flow.Node:
    """A terminated tree with all that belongs to one, also a log and a job of a stage."""
    parent = flow.start(Double, alias="parent", data={"number": [1]}, run=False)
    child = parent.spawn("child", Double, alias="child", inputs={"number": {"channels": ["/a"]}})
    parent.outputs["out"].connect(child.inputs["number"])
    parent.spawn("stage", "flow.jobs", args=["ask_later"], data={"in": [{}]})
    failing = parent.spawn("failing", Recorder, run=False)
    failing.state.set(perform=["raise"])
    failing.run()
    testing.drain(errors=False)
    parent.terminate(recursive=True)
    testing.drain()
    parent.inputs["number"].write(2)
    return parent


def test_case_059(tree: flow.Node, hear: Hear) -> None:
    child, heard = flow.get("child"), hear(f"/flow/node/{tree.pk}")

    assert tree.delete()
    assert not tree.exists()
    assert not child.exists()
    assert heard() == [{"deleted": True}]
    assert [flow.find(name) for name in ("parent", "child")] == [None, None]
    flow.publish("/a", 1)
    for gone in (tree.state.all, lambda: tree.inputs["number"].write(1)):
        with pytest.raises((flow.NodeDeletedError, flow.UnknownPortError)):
            gone()


def test_no_row_of_a_deleted_tree_is_left(tree: flow.Node) -> None:
    kept = {Graph, Request}
    models = [each for each in apps.get_app_config("hipq_flow").get_models() if each not in kept]
    assert [model for model in models if not model._default_manager.exists()] == []
    assert tree.delete()

    assert [model for model in models if model._default_manager.exists()] == []


def test_case_060() -> None:
    parent = flow.start(Double)
    child = parent.spawn("child", Double)
    child.terminate()
    testing.drain()
    child.delete()

    assert parent.children == {}
    assert parent.child("child") is None


def test_case_061(recorder: Start) -> None:
    node = recorder("delete")
    testing.drain()

    assert Recorder.calls == ["startup", "perform", "shutdown"]
    assert not node.exists()
    assert flow.find(node.pk) is None


def test_case_062() -> None:
    node = in_status("terminating")

    assert node.run(force=True) == node
    assert node.status == "queued"
    testing.drain()
    assert Recorder.calls == ["startup", "perform"]
    assert node.status == "completed"


def test_a_tree_is_deleted_when_the_last_one_below_it_is_terminated() -> None:
    """Of a grandchild the root is told by nobody: its parent is woken, which has ended before."""
    root = flow.start(Double)
    last = root.spawn("child", Double).spawn("grandchild", Asks, data={"question": ["why"]})
    testing.drain()
    root.terminate(delete=True)
    testing.drain()
    assert [node.status for node in (root, last)] == ["terminated", "terminating"]
    hipq.complete("t.asks", "question-why", "because")
    testing.drain()

    assert not flow.Node.objects.exists()


def test_a_child_that_comes_later_ends_with_its_doomed_tree(script: Script) -> None:
    root = flow.start("t.scripted", run=False)

    def perform(run: Any) -> None:
        root.terminate(delete=True)
        run.spawn("child", Double)

    script.perform = perform
    root.spawn("spawns", "t.scripted")
    testing.drain()

    assert not flow.Node.objects.exists()


def test_a_lock_does_not_shorten_the_wait_for_the_next_attempt(script: Script) -> None:
    def perform(run: flow.Component) -> None:
        raise hipq.Snooze(3_600)

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain(errors=False)
    put_back = hipq.Job.objects.get()
    token = node.lock(60)
    assert token
    assert node.unlock(token)

    assert put_back.attempt == 1
    assert hipq.Job.objects.get().scheduled_run_time == put_back.scheduled_run_time


def test_a_run_that_is_tried_again_with_its_answer_waits_for_the_lock() -> None:
    node = flow.start(CannotTakeItsAnswer, data={"number": [1]})
    testing.drain()
    hipq.complete("t.cannot_take_its_answer", "asked", "yes")
    testing.drain(errors=False)
    token = node.lock(3_600)
    assert token
    with hipq.testing.travel(seconds=61):
        testing.drain(errors=False)
        assert Recorder.calls == ["on_response"]
        assert node.unlock(token)
        testing.drain(errors=False)

    assert Recorder.calls == ["on_response"] * 2
