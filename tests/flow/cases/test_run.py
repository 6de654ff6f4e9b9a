"""Cases 22 to 42: when nodes run, and what becomes of them."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from tests.flow.conftest import RELEASED, in_status, release, withdraw
from tests.testapp.flows import CodeError, Double, Fast, Recorder, Script, Slowed

pytestmark = pytest.mark.django_db
Start = Callable[..., flow.Node]
Heard = Callable[[], list[Any]]


@pytest.mark.parametrize("status", ["queued", "suspended", "completed"])
def test_case_022(status: str) -> None:
    node = in_status(status)

    assert node.run() == node
    assert node.status == "queued"
    assert testing.due(node) == 1


@pytest.mark.parametrize("status", ["failed", "terminating", "terminated"])
def test_case_023(status: str) -> None:
    node = in_status(status)

    assert node.run() is None
    assert node.status == status
    assert testing.due(node) == (status == "terminating")  # its shutdown
    assert node.run(force=True) == node
    assert node.status == "queued"
    assert testing.due(node) == 1


def test_case_024() -> None:
    node = flow.start(Double)
    for _ in range(3):
        node.run()
        assert testing.due(node) == 1


def test_case_025() -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", Double, run=False)

    assert parent.run(parent=True) is None
    assert parent.status == "completed"
    assert child.run(parent=True) == parent
    assert (parent.status, child.status) == ("queued", "completed")


def test_case_026() -> None:
    moment = datetime(2031, 5, 1, 12, tzinfo=UTC)
    for at in (moment, moment.timestamp()):
        node = flow.start(Double, run=False)
        node.run(at=at)
        assert (node.status, testing.due(node)) == ("queued", 0)
        assert hipq.Job.objects.latest("pk").scheduled_run_time == moment
    node = flow.start(Double, run=False)
    node.run(wait=100)
    assert (node.status, testing.due(node)) == ("queued", 0)
    due = hipq.Job.objects.latest("pk").scheduled_run_time - timezone.now()
    assert timedelta(seconds=70) < due < timedelta(seconds=101)


def test_case_027() -> None:
    node = flow.start(Recorder, run=False)
    node.run(wait=3600)
    assert testing.due(node) == 0
    node.run()

    assert testing.due(node) == 1
    testing.drain()
    assert Recorder.calls == ["startup", "perform"]
    assert node.status == "queued"  # the later one
    with hipq.testing.travel(hours=2):
        testing.drain()
    assert Recorder.calls == ["startup", "perform", "perform"]
    assert node.status == "completed"


def runs_later(node: flow.Node) -> None:
    """Assert that a node has a run within two hours, and none before its moment."""
    Recorder.calls.clear()
    testing.drain()
    assert Recorder.calls == []
    assert node.status == "queued"
    with hipq.testing.travel(hours=2):
        testing.drain()
    assert Recorder.calls == ["perform"]
    assert node.status == "completed"


def later_and_data(node: flow.Node) -> None:
    node.run(wait=3600)
    node.inputs["a"].write(1)


NOW_AND_LATER: dict[str, Callable[[flow.Node], Any]] = {
    "later, now": lambda node: (node.run(wait=3600), node.run()),
    "now, later": lambda node: (node.run(), node.run(wait=3600)),
    "later, data": later_and_data,
    "twice later": lambda node: (node.run(wait=7200), node.run(wait=3600), node.run()),
}


LATER: dict[str, Callable[[flow.Node], Any]] = {"later": lambda node: node.run(wait=3600)}


@pytest.mark.parametrize("ask", NOW_AND_LATER)
def test_a_run_now_and_a_later_one_that_are_asked_for_together(ask: str) -> None:
    node = in_status("suspended")
    node.state.set(perform=[])
    NOW_AND_LATER[ask](node)
    testing.drain()

    assert Recorder.calls.count("perform") == 1
    runs_later(node)


@pytest.mark.parametrize("ask", ["later", "later, data"])
def test_a_later_run_that_is_asked_for_while_the_node_is_paused(ask: str) -> None:
    node = flow.start(Recorder, run=False)
    node.pause()
    (LATER | NOW_AND_LATER)[ask](node)
    testing.drain()
    assert (Recorder.calls, node.status, node.is_idle()) == ([], "queued", False)
    node.resume()
    testing.drain()

    assert Recorder.calls == ["startup", "perform"]  # it looks at what came meanwhile
    runs_later(node)


def test_case_028() -> None:
    release()
    node = flow.start(RELEASED, data={"x": [1]})
    withdraw()
    testing.drain()

    assert node.status == "queued"
    assert "unknown_type" in [reason.code for reason in flow.explain(node)]
    assert node.run() == node
    assert node.terminate() == node
    testing.drain()
    assert node.status == "terminating"
    node.terminate(force=True)
    assert node.status == "terminated"
    assert node.delete()


def test_case_029() -> None:
    node = in_status("terminated")
    node.delete()

    shown = (lambda: node.status, lambda: node.info, lambda: node.graph)
    for verb in (node.run, node.terminate, *shown):
        with pytest.raises(flow.NodeDeletedError, match="was deleted"):
            verb()


def test_case_030(script: Script) -> None:
    def perform(run: flow.Component) -> None:
        Recorder.calls.append("perform")
        if len(Recorder.calls) == 1:
            flow.get(run.node.pk).run()
            Recorder.seen.append(flow.get(run.node.pk).status)

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain()

    assert Recorder.calls == ["perform", "perform"]
    assert Recorder.seen == ["running"]
    assert node.status == "completed"


def test_case_031(recorder: Start) -> None:
    node = recorder("run_thrice")
    testing.drain()

    assert Recorder.calls == ["startup", "perform", "perform", "perform"]
    assert node.status == "completed"


@pytest.mark.parametrize("status", ["suspended", "completed"])
def test_case_032(status: str) -> None:
    node = in_status(status)
    node.run()
    assert testing.due(node) == 1
    node.pause()
    testing.drain()

    assert Recorder.calls == []
    assert node.status == status


def test_case_032_failed() -> None:
    """Its job has ended; one that an operator requeues is not out of date: it forces the node."""
    node = in_status("failed")
    [ended] = hipq.Job.objects.all()
    testing.drain()
    assert (Recorder.calls, node.status) == ([], "failed")
    node.state.set(perform=[])
    hipq.requeue(ended)
    testing.drain()

    assert (Recorder.calls, node.status) == (["perform"], "completed")


def test_case_032_running(recorder: Start) -> None:
    """Failed, too: nothing that is out of date runs it, and no job of it can be enqueued."""
    node = recorder("ask")
    testing.drain()
    ended = hipq.Job.objects.get()
    hipq.complete("t.recorder", f"recorder-{ended.pk}", "yes")
    testing.drain()
    node.run()
    testing.drain()
    Recorder.calls.clear()
    hipq.requeue(ended)
    testing.drain()

    assert Recorder.calls == []
    assert node.status == "running"
    with pytest.raises(hipq.InvalidJobError, match="not enqueued"):
        hipq.enqueue("t.recorder", {"node": node.pk})


def test_case_033() -> None:
    node = flow.start(Recorder)
    testing.drain()
    ended = hipq.Job.objects.get()
    node.terminate(delete=True)
    testing.drain()
    Recorder.calls.clear()
    stale = hipq.requeue(ended)
    testing.drain()

    assert Recorder.calls == []
    stale.refresh_from_db()
    assert stale.outcome == "succeeded"
    assert not node.exists()


def test_case_034(script: Script) -> None:
    def perform(run: flow.Component) -> None:
        Recorder.seen.append(flow.get(run.node.pk).status)
        takes_long.enter_context(hipq.testing.travel(hours=1))

    script.perform = perform
    node = flow.start("t.scripted")
    with ExitStack() as takes_long:
        testing.drain()

    assert Recorder.seen == ["running"]
    assert node.status == "completed"
    assert abs(node.info["ran_at"] - node.info["create_time"]) < timedelta(minutes=30)


def test_case_035(recorder: Start) -> None:
    node = recorder("suspend")
    testing.drain()

    assert node.status == "suspended"


def test_case_036(recorder: Start) -> None:
    node = recorder("run_thrice", "suspend")
    testing.run_inline(node, queue=False)

    assert node.status == "queued"


def test_case_037(recorder: Start, logged: Heard) -> None:
    node = recorder("raise")
    with pytest.raises(CodeError):
        testing.drain()

    assert node.status == "failed"
    [entry] = logged()
    assert entry["error"] == "CodeError: as asked"
    assert entry["node"] == node.pk


def test_case_038(recorder: Start) -> None:
    node = recorder("terminate", "raise")
    testing.run_inline(node, queue=False, errors=False)

    assert node.status == "terminating"


def test_case_039(recorder: Start) -> None:
    node = recorder("raise", startup=["greet"])
    testing.drain(errors=False)
    assert node.status == "failed"
    assert node.outputs["out"].peek(2) == ["hello"]
    testing.run_inline(node, errors=False)

    assert Recorder.calls == ["startup", "perform", "perform"]
    assert node.outputs["out"].peek(2) == ["hello"]


def test_case_040(recorder: Start) -> None:
    node = recorder(startup=["raise"])
    testing.drain(errors=False)
    assert node.status == "failed"
    node.run(force=True)
    testing.drain(errors=False)
    assert Recorder.calls == ["startup", "startup"]

    other = recorder(startup=["suspend"])
    testing.drain()
    assert other.status == "suspended"


@pytest.mark.parametrize("end", ["completed", "failed", "terminated"])
@pytest.mark.conformance
def test_case_041(end: str) -> None:
    parents = {status: in_status(status) for status in ("suspended", "completed", "failed")}
    for parent in parents.values():
        child = parent.spawn("child", Recorder, run=False)
        child.state.set(perform=["raise"] if end == "failed" else [])
        if end == "terminated":
            child.terminate()
        testing.run_inline(child, queue=end != "terminated", errors=False)

    assert {name: parent.status for name, parent in parents.items()} == {
        "suspended": "queued",
        "completed": "queued",
        "failed": "failed",
    }


@flow.component("t.tells_changes", wake_parent="changes")
class TellsChanges(flow.Component):
    """Wakes its parent only if there is something to look at."""

    word, out = flow.In(), flow.Out()

    def perform(self) -> None:
        word = self.word.read()
        if word == "suspend":
            self.suspend()
        if word == "write":
            self.out.write(word)


def test_a_parent_may_be_woken_by_changes_only() -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", TellsChanges, run=False)

    def woken_by(word: str) -> bool:
        child.inputs["word"].write(word)
        testing.run_inline(child)
        was_woken = parent.status == "queued"
        testing.drain()
        return was_woken

    words = ["nothing", "suspend", "suspend", "nothing", "write"]
    assert [woken_by(word) for word in words] == [False, True, False, True, True]


def test_case_042(logged: Heard) -> None:
    node = flow.start(Fast)
    for _ in range(5):
        testing.run_inline(node)
    assert Recorder.calls == ["fast"] * 5

    testing.run_inline(node)
    assert node.status == "terminating"
    [entry] = logged()
    assert "runs_per_minute" in entry["error"]
    testing.drain()
    assert Recorder.calls == ["fast"] * 5 + ["fast shutdown"]
    assert node.status == "terminated"


@pytest.mark.conformance
def test_a_node_that_runs_too_often_is_slowed_if_nothing_else_is_said() -> None:
    node = flow.start(Slowed)
    for _ in range(5):
        testing.run_inline(node)
    node.run()

    assert testing.due(node) == 0
    assert node.status == "queued"
    with hipq.testing.travel(seconds=13):
        testing.drain()
    assert Recorder.calls == ["slowed"] * 6


@pytest.mark.parametrize("runs_again", [{"wait": 0.01}, {"wait": 5}, {"at": 0}, {}])
def test_alarms_do_not_get_round_the_rate(runs_again: dict[str, float], script: Script) -> None:
    """So a loop by alarms cannot spin either."""

    def perform(run: flow.Component) -> None:
        Recorder.calls.append("ran")
        run.run(**runs_again)

    script.perform = perform
    flow.start("t.scripted_slowly")
    with hipq.testing.travel(seconds=0):  # which sets the clock back
        hipq.testing.run_for(seconds=60)

    assert 5 <= len(Recorder.calls) <= 5 + 5


def test_a_message_does_not_bring_a_run_forward_beyond_the_rate() -> None:
    node = flow.start(Slowed)
    for _ in range(5):
        testing.run_inline(node)
    node.run(wait=600)
    assert testing.due(node) == 0
    node.run()

    assert testing.due(node) == 0
    with hipq.testing.travel(seconds=13):
        assert testing.due(node) == 1
