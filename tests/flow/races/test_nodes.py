"""Dispatchers, ends of runs and operators, on connections whose transactions overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError

import hipq_django as hipq
from hipq_django import flow, transitions
from hipq_django.conf.instances import get_instance
from hipq_django.flow.models import Alias, Wake
from hipq_django.flow.runs import dispatching
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Worker
from hipq_django.scheduler.companions import Persist
from hipq_django.transitions.values import Persisted, Result
from tests.concurrency.sessions import Session
from tests.flow.races.conftest import FlowWorker, decided_by, end_all, nothing
from tests.job_life.actors import COMMIT, END
from tests.job_life.steps import Steps
from tests.testapp.flows import Double, Recorder, Sum

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Dispatch = Callable[[], int]


def live_runs(node: flow.Node) -> int:
    return Job.objects.live().filter(job_data__node=node.pk).count()


def leave_end_unwritten(worker: FlowWorker, node: flow.Node) -> None:
    """Let a run of the node have executed whose end is not written."""
    node.run()
    worker.run_pass()
    worker.execute()


# No data sleeps


@decided_by("runs.dispatching.locked")
def test_data_that_come_while_an_end_is_committed(
    holds: bool, steps: Steps, worker: FlowWorker, dispatch: Dispatch
) -> None:
    node = flow.start(Sum, run=False)
    leave_end_unwritten(worker, node)
    steps.begin("end", worker.save, COMMIT)
    node.inputs["number"].write(2)
    steps.begin("dispatch", dispatch, END)
    end_all(steps)
    worker.run_until_idle()

    assert (node.inputs["number"].size == 0) == holds


@decided_by("runs.dispatching.locked", "statements.row_lock")
def test_two_dispatchers_make_one_run(holds: bool, steps: Steps, dispatch: Dispatch) -> None:
    node = flow.start(Double)
    steps.begin("dispatch", dispatch, COMMIT)
    steps.begin("dispatch", dispatch, END)
    end_all(steps)

    assert (live_runs(node) == 1) == holds


@pytest.mark.usefixtures("nobody_waits")
def test_the_wakes_of_a_locked_node_hold_no_other_node_up(
    session: Session, dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "PAGE_SIZE", 3)
    held, other = flow.start(Sum, run=False), flow.start(Sum, run=False)
    session.begin()
    session(lambda: held.state.set(busy=True))
    for number in range(7):
        held.inputs["number"].write(number)
    other.inputs["number"].write(1)
    dispatch()

    assert (live_runs(held), live_runs(other)) == (0, 1)
    assert Wake.objects.filter(node=held).count() == 7
    session.commit()
    dispatch()
    assert live_runs(held) == 1


# Operators


@decided_by("runs.ending.locked")
def test_a_node_is_terminated_while_its_run_ends(
    holds: bool, steps: Steps, worker: FlowWorker
) -> None:
    node = flow.start(Recorder, run=False)
    leave_end_unwritten(worker, node)
    ending = steps.begin("end", worker.save, "update hipq_flow_node as n")
    assert ending.has_stopped
    steps.begin("terminate", node.terminate, END)
    end_all(steps)
    worker.run_until_idle()

    assert (Recorder.calls == ["startup", "perform", "shutdown"]) == holds
    assert (node.status == "terminated") == holds


@decided_by("lifecycle.locked")
def test_a_node_is_locked_while_its_run_is_claimed(
    holds: bool, steps: Steps, worker: FlowWorker, dispatch: Dispatch
) -> None:
    node = flow.start(Recorder)
    dispatch()
    locking = steps.begin("lock", lambda: node.lock(60, retries=1), 'update "hipq_flow_node"')
    assert locking.has_stopped
    worker.run_pass()
    end_all(steps)
    worker.run_pass()
    worker.execute()
    worker.save()

    assert locking.result is not None
    assert (Recorder.calls == []) == holds


@decided_by("lifecycle.locked")
def test_a_node_is_locked_while_the_claim_of_its_run_is_committed(
    holds: bool, steps: Steps, worker: FlowWorker, dispatch: Dispatch
) -> None:
    """The claim is first: a job with windows is claimed by several statements."""
    node = flow.start(Recorder, job={"time_windows": ["00:00-12:00", "12:00-24:00"]})
    dispatch()
    claiming = steps.begin("claim", worker.run_pass, COMMIT)
    assert claiming.has_stopped
    locking = steps.begin("lock", lambda: node.lock(60, retries=1), 'update "hipq_flow_node"')
    assert locking.has_stopped != holds
    steps.go_on(claiming, END)
    end_all(steps)
    worker.execute()

    assert (locking.result is None) == holds
    assert Recorder.calls == ["startup", "perform"]


@decided_by("family.locked")
def test_two_trees_adopt_each_other(holds: bool, steps: Steps) -> None:
    a, b = flow.start(Double, run=False), flow.start(Double, run=False)
    below = b.spawn("below", Double, run=False)
    refusals = (flow.FamilyError,)
    one = steps.begin("adopt", lambda: a.adopt(b, "b"), COMMIT, refusals=refusals)
    two = steps.begin("adopt", lambda: below.adopt(a, "a"), END, refusals=refusals)
    end_all(steps)

    assert (len([step for step in (one, two) if step.refusal]) == 1) == holds
    is_ring = flow.get(a.pk).parent == below and flow.get(b.pk).parent == a
    assert is_ring != holds


@decided_by("creating.locked")
def test_a_child_is_spawned_while_its_tree_is_deleted(holds: bool, steps: Steps) -> None:
    """Without the lock the database refuses it, with an error that says nothing."""
    node = flow.start(Double, run=False)
    node.terminate(force=True)
    refusals = (flow.NodeDeletedError, IntegrityError)
    steps.begin("delete", node.delete, COMMIT)
    spawning = steps.begin("spawn", lambda: node.spawn("child", Double), END, refusals=refusals)
    end_all(steps)

    assert isinstance(spawning.refusal, flow.NodeDeletedError) == holds
    assert not flow.Node.objects.exists()


@decided_by("family.locked")
def test_a_tree_is_deleted_while_a_child_is_spawned(holds: bool, steps: Steps) -> None:
    node = flow.start(Double, run=False)
    node.terminate(force=True)
    steps.begin("spawn", lambda: node.spawn("child", Double), COMMIT)
    deleting = steps.begin("delete", node.delete, END, refusals=(IntegrityError,))
    end_all(steps)

    assert (deleting.result is False) == holds
    assert sorted(node.children) == ["child"]


@decided_by("creating.locked")
@pytest.mark.parametrize("how", [{"recursive": True}, {"delete": True}])
def test_a_tree_is_terminated_while_a_child_is_spawned(
    how: dict[str, bool], holds: bool, steps: Steps
) -> None:
    node = flow.start(Double, run=False)
    steps.begin("spawn", lambda: node.spawn("child", Double), COMMIT)
    steps.begin("terminate", partial(node.terminate, **how), END)
    end_all(steps)

    assert (node.children["child"].status == "terminating") == holds


@decided_by("creating.locked")
def test_a_child_name_is_taken_by_two(holds: bool, steps: Steps) -> None:
    """The second waits for the lock of the parent; without it the constraint refuses the name."""
    parent = flow.start(Double, run=False)
    spawn = lambda: parent.spawn("child", Double, run=False)  # noqa: E731 - the same twice
    one = steps.begin("spawn", spawn, COMMIT)
    two = steps.begin("spawn", spawn, END, refusals=(flow.NameTakenError,))
    end_all(steps)

    assert isinstance(two.refusal, flow.NameTakenError)
    assert parent.children == {"child": one.result}


@decided_by("runs.ending._relatives_of", without=lambda _: set())
def test_a_run_changes_its_parent_while_that_is_terminated_with_it(
    holds: bool, steps: Steps, worker: FlowWorker
) -> None:
    parent = flow.start(Double, run=False)
    child = parent.spawn("child", PausesItsParent)
    worker.run_pass()
    running = steps.begin("run", worker.execute, 'update "hipq_flow_node"')
    steps.begin("terminate", lambda: parent.terminate(recursive=True), END)
    if holds:
        end_all(steps)
        assert (flow.get(parent.pk).paused, child.state.all()) == (True, {"done": True})
        assert {parent.status, child.status} == {"terminating"}
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(running, END)


@flow.component("t.pauses_its_parent")
class PausesItsParent(flow.Component):
    """Pauses its parent in the transaction in which it ends."""

    def perform(self) -> None:
        with self.finishing():
            self.state.set(done=True)
            assert self.parent is not None
            self.parent.pause()


@decided_by("graphs.applying.lock_tree", without=nothing)
def test_a_graph_is_changed_while_its_tree_is_terminated(holds: bool, steps: Steps) -> None:
    """A child that vanishes is older than the graph: it was adopted."""
    child = flow.start(Double, run=False)
    graph = flow.start({"nodes": {"old": {"component": "t.double", "init": child.pk}}})
    applying = steps.begin("apply", lambda: graph.apply({"nodes": {}}), 'update "hipq_flow_node"')
    steps.begin("terminate", lambda: graph.terminate(recursive=True), END)
    if holds:
        end_all(steps)
        assert graph.children == {}
        assert {graph.status, child.status} == {"terminating"}
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(applying, END)


# Workers


@flow.component("t.overtaken")
class Overtaken(flow.Component):
    """Asks for its first message, and waits for the answer if it is told to."""

    x, out = flow.In(), flow.Out()

    def perform(self, *args: bool) -> Any:
        Recorder.calls.append("perform")
        for x in self.x:
            self.out.write(x)
        if args and Recorder.calls == ["perform"]:
            self.job.set_key("overtaken")
            return hipq.WAIT if args[0] else None
        return None

    def on_response(self, response: Any) -> None:
        Recorder.calls.append(response)
        self.out.write(response)


def answer() -> Any:
    return hipq.complete("t.overtaken", "overtaken", "yes")


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("until", [END, COMMIT])
def test_an_answer_overtakes_the_end_of_its_run(
    waits: bool, until: str, steps: Steps, worker: FlowWorker
) -> None:
    """What the run has done counts if it said that it waits; else it begins anew afterwards."""
    node = flow.start(Overtaken, args=[waits], data={"x": [1]})
    worker.run_pass()
    worker.execute()
    steps.begin("answer", answer, until)
    steps.begin("end", worker.save, END)
    end_all(steps)
    worker.run_until_idle()

    assert Recorder.calls == ["perform", "yes", *([] if waits else ["perform"])]
    assert list(node.outputs["out"]) == ([1, "yes"] if waits else ["yes", 1])
    assert (node.status, node.inputs["x"].size) == ("completed", 0)


def all_are_ours(
    results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
) -> Iterator[Persisted]:
    """Stand for the ends of jobs where nobody looks whose they are."""
    for persisted in persist(results, worker, now):
        for job in Job.objects.filter(pk__in=[r.claim.id for r in persisted.dropped]):
            transitions.succeed(job, None, now)
    yield Persisted(list(results), [], [])


@decided_by("hipq_django.scheduler.persisting.persist_jobs", without=all_are_ours)
def test_a_zombie_ends_a_run_that_was_taken_over(holds: bool, worker: FlowWorker) -> None:
    node, other = flow.start(Sum, data={"number": [1]}), FlowWorker()
    worker.run_pass()
    worker.execute()
    worker.die()
    recovery.recover_lost(get_instance("default"))
    other.work()  # the decision
    assert other.run_pass()
    worker.save()

    assert (node.status == "running") == holds
    assert (node.outputs["out"].size == 0) == holds
    other.execute()
    other.save()
    assert list(node.outputs["out"]) == [1]


def test_ends_of_a_batch_go_on_beside_one_whose_node_is_locked(
    session: Session, worker: FlowWorker
) -> None:
    nodes = [flow.start(Double, data={"number": [1]}) for _ in range(3)]
    worker.run_pass()
    worker.execute()
    session.begin()
    session(lambda: nodes[1].state.set(busy=True))
    worker.save()
    assert [node.status for node in nodes] == ["completed", "running", "completed"]
    session.commit()
    worker.save()

    assert [list(node.outputs["out"]) for node in nodes] == [[2]] * 3


def test_an_alias_is_taken_by_two(steps: Steps) -> None:
    first, second = flow.start(Double, run=False), flow.start(Double, run=False)
    refusals = (flow.AliasTakenError, Alias.MultipleObjectsReturned)
    adding = [
        steps.begin("add", partial(node.aliases.add, "shop"), until, refusals=refusals)
        for node, until in ((first, COMMIT), (second, END))
    ]
    end_all(steps)
    [refusal] = [step.refusal for step in adding if step.refusal]

    assert isinstance(refusal, flow.AliasTakenError)
    assert flow.get("shop") == refusal.node
    assert Alias.objects.count() == 1
