"""What becomes of messages where a connection breaks, a worker dies or code is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import Error, connection, transaction

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow.models import LogEntry, Message, NodePort, Wake
from hipq_django.flow.runs import dispatching
from hipq_django.maintenance import recovery
from hipq_django.models import Attempt, Job
from tests.concurrency.sessions import Session
from tests.faults import IN_TURN, Faults, InTurn, breaking
from tests.flow.races.conftest import FlowWorker
from tests.testapp.flows import Asks, CodeError, Double, Recorder, Script

pytestmark = pytest.mark.django_db(transaction=True)

AfterBreak = Callable[[FlowWorker], FlowWorker]


def goes_on(worker: FlowWorker) -> FlowWorker:
    """Let the worker go on, with a sound connection."""
    worker.scheduler.release_unconfirmed()
    worker.execute()
    worker.save()
    return worker


def dies(worker: FlowWorker) -> FlowWorker:
    """Let another worker take over."""
    worker.die()
    recovery.recover_lost(get_instance("default"))
    return FlowWorker()


@IN_TURN
@pytest.mark.parametrize(
    ("after_break", "runs"),
    [
        (goes_on, 2),
        (dies, 1),
        pytest.param(goes_on, 1, marks=pytest.mark.nightly),
        pytest.param(dies, 2, marks=pytest.mark.nightly),
    ],
)
def test_messages_count_once_whichever_moment_of_a_run_breaks(
    after_break: AfterBreak, runs: int, in_turn: InTurn
) -> None:
    """From the wake to the end of the run.

    Several runs are ended by one transaction; one, by itself.
    """

    def break_at(moment: int) -> Faults:
        Message.objects.all().delete()
        pairs = [_pair() for _ in range(runs)]
        worker = FlowWorker()
        with breaking(moment) as faults:
            run_once(worker)
        survivor = after_break(worker)
        survivor.run_until_idle()

        for node, target in pairs:
            assert target.inputs["number"].peek(9) == [2, 4], faults.place
            assert node.inputs["number"].size == 0, faults.place
            assert node.status == "completed", faults.place
        assert not list(survivor.batch), faults.place
        return faults

    in_turn(break_at)


def _pair() -> tuple[flow.Node, flow.Node]:
    node, target = flow.start(Double, run=False), flow.start(Double, run=False)
    node.outputs["out"].connect(target.inputs["number"])
    target.pause()
    node.inputs["number"].write_many([1, 2])
    return node, target


def run_once(worker: FlowWorker) -> None:
    try:
        worker.work()
    except Error:
        connection.close()


@pytest.mark.postgres
def test_a_run_whose_connection_is_cut_is_put_back_and_the_node_has_not_failed(
    worker: FlowWorker, script: Script
) -> None:
    cuts = iter([True, False])

    def perform(run: Any) -> None:
        for item in run.item:
            run.out.write(item)
            if next(cuts, False):
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    script.perform = perform
    node = flow.start("t.scripted", data={"item": [1, 2]})
    worker.run_pass()
    worker.execute()
    connection.close()  # as a thread does between two jobs
    worker.save()
    job = Job.objects.get()

    assert (job.state, node.status) == ("retry", "queued")
    assert not job.attempts.exists()
    hipq.run_now(job)
    worker.run_until_idle()
    assert node.outputs["out"].peek(3) == [1, 2]


def test_a_node_that_is_deleted_while_its_run_executes_gets_nothing_of_it(
    worker: FlowWorker,
) -> None:
    node, target = flow.start(Double, data={"number": [1]}), flow.start(Double, run=False)
    node.outputs["out"].connect(target.inputs["number"])
    worker.run_pass()
    node.terminate(force=True)
    assert node.delete()
    worker.execute()
    worker.run_until_idle()

    assert not Message.objects.exists()
    assert Job.objects.get().outcome == "cancelled"


def test_a_message_that_a_connected_port_does_not_take_fails_the_run_that_wrote_it(
    worker: FlowWorker,
) -> None:
    node, target = flow.start("t.add", run=False), flow.start(Double, run=False)
    node.outputs["out"].connect(target.inputs["number"])
    node.inputs["x"].write(0.5)
    worker.run_until_idle()

    assert node.status == "failed"
    assert "takes int" in flow.get(node.pk).error
    assert node.inputs["x"].peek(2) == [0.5]


@pytest.mark.parametrize("is_connected", [False, True])
def test_who_listens_gets_what_its_port_takes_and_stops_nobody(
    is_connected: bool, worker: FlowWorker
) -> None:
    """A publisher does not know its subscribers; least of all do those who tell of nodes."""
    listener, target = flow.start("t.relay", run=False), flow.start(Double, run=False)
    target.pause()
    port = listener.inputs["item"] if is_connected else target.inputs["number"]
    port.channels = ["/flow", "/numbers"]
    if is_connected:
        port.connect(target.inputs["number"])
    node = flow.start(Double, data={"number": [1]}, outputs={"out": {"channels": ["/numbers"]}})
    broken = flow.start("t.cards", data={"order": [{"bad": True, "card": "4", "id": 1}]})
    flow.publish("/numbers", "text")
    flow.publish("/numbers", 5)
    worker.run_until_idle()

    assert (node.status, broken.status) == ("completed", "failed")
    assert target.inputs["number"].peek(9) == [5, 2]


@pytest.mark.postgres
@pytest.mark.parametrize("is_read", [False, True])
def test_a_message_that_is_being_read_goes_to_the_port_error_only_if_it_stays(
    is_read: bool, worker: FlowWorker, session: Session
) -> None:
    node = flow.start("t.poisoned", data={"x": ["bad"]})
    session.begin()
    assert session(flow.get(node.pk).inputs["x"].read) == "bad"
    worker.run_until_idle()
    assert node.status == "running"
    session.commit() if is_read else session.roll_back()
    worker.run_until_idle()

    assert [error["data"] for error in node.outputs["error"]] == ([] if is_read else ["bad"])
    assert node.status == ("failed" if is_read else "completed")


@flow.component("t.takes_some", retry=hipq.Fixed(0, max_attempts=2))
class TakesSome(flow.Component):
    """Raises at each tuple, but cannot even begin if the state says so."""

    x, error = flow.In(), flow.Out()

    def perform(self) -> None:
        if self.state.get("stopped", False):
            raise CodeError("cannot begin")
        for _ in self.each("x"):
            raise CodeError("cannot take it")


def cannot_begin(node: flow.Node, worker: FlowWorker) -> None:
    node.state.set(stopped=True)
    worker.run_until_idle()


def is_lost(node: flow.Node, worker: FlowWorker) -> None:
    worker.run_pass()
    dies(worker).run_until_idle()


@pytest.mark.parametrize("end", [cannot_begin, is_lost])
def test_messages_that_the_last_attempt_did_not_raise_at_stay_and_the_node_fails(
    end: Callable[[flow.Node, FlowWorker], None], worker: FlowWorker
) -> None:
    node = flow.start(TakesSome, data={"x": [1, 2]})
    worker.run_pass()
    worker.work()
    assert (node.status, Job.objects.get().state) == ("queued", "retry")
    end(node, worker)

    assert node.status == "failed"
    assert (list(node.inputs["x"]), node.outputs["error"].size) == ([1, 2], 0)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_port_that_a_new_release_declares_is_made_by_who_uses_it(
    is_written: bool, worker: FlowWorker
) -> None:
    node = flow.start(Double, run=not is_written)
    NodePort.objects.filter(node=node, direction="in").delete()
    if is_written:
        node.inputs["number"].write(1)
    worker.run_until_idle()

    assert list(node.inputs) == ["number"]
    assert list(node.outputs["out"]) == ([2] if is_written else [])


def asked(worker: FlowWorker) -> flow.Node:
    """Return a node whose run waits for its answer."""
    node = flow.start(Asks, data={"question": ["why"]})
    worker.run_until_idle()
    return node


def test_an_answer_whose_worker_dies_is_taken_by_another(worker: FlowWorker) -> None:
    node = asked(worker)
    hipq.complete("t.asks", "question-why", "because")
    worker.run_pass()
    worker.execute()
    assert node.outputs["answer"].size == 0
    dies(worker).run_until_idle()

    assert list(node.outputs["answer"]) == [["why", "because"]]
    assert (node.status, node.inputs["question"].size) == ("completed", 0)
    assert Attempt.objects.get().kind == Attempt.Kind.WORKER_LOST


def test_a_shutdown_that_is_lost_again_and_again_is_logged() -> None:
    """It never blocks: the node is terminated, and its log says why nothing was shut down."""
    node = flow.start(Recorder, run=False)
    node.terminate()
    lost = 0
    while lost < 3:
        worker = FlowWorker()
        worker.run_pass()
        if any(claim.phase == "request" for claim in worker.claims):
            lost += 1
            dies(worker)
        else:  # it decides what follows the loss
            worker.execute()
            worker.save()
    FlowWorker().run_until_idle()
    dispatching.sweep(get_instance("default"))

    assert node.status == "terminated"
    entry = LogEntry.objects.get(node=node).entry
    assert entry["error"].startswith("WorkerLost")
    assert entry["run"] == Job.objects.get().pk
    assert Recorder.calls == []


def test_a_write_that_is_rolled_back_leaves_no_message_and_no_wake() -> None:
    node = flow.start(Double, run=False)
    with transaction.atomic():
        node.inputs["number"].write(1)
        transaction.set_rollback(True)

    assert not Message.objects.exists()
    assert not Wake.objects.exists()
    assert node.status == "completed"
