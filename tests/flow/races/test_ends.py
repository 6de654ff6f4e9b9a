"""What the ends of runs decide, one connection at a time: on both databases."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection

import hipq_django as hipq
from hipq_django import flow
from hipq_django.api import finishing
from hipq_django.conf.instances import get_instance
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.domain.states import State
from hipq_django.flow import testing
from hipq_django.flow.models import Message, NodePort, Wake
from hipq_django.flow.runs import dispatching, ending, loading
from hipq_django.maintenance import recovery
from hipq_django.models import Batch, Job
from tests.concurrency.conftest import Refuse, refuse
from tests.concurrency.sessions import Session
from tests.flow.life.scripts import ask, hand_on
from tests.flow.races.conftest import FlowWorker, decided_by, nothing
from tests.testapp.flows import SCRIPT, Asks, CodeError, Double, Recorder, Script, Sum

__all__ = ["refuse"]

pytestmark = pytest.mark.django_db(transaction=True)

LOCK_MESSAGES = "LOCK TABLE hipq_flow_message IN ACCESS EXCLUSIVE MODE"


def job_of(node: flow.Node) -> Job:
    node.refresh_from_db()
    return Job.objects.get(pk=node.job_id or 0)


def test_what_comes_while_a_run_waits_for_its_answer_is_seen_after_it() -> None:
    node = flow.start(Asks, data={"question": ["one"]})
    testing.drain()
    node.inputs["question"].write("two")
    testing.drain()
    hipq.complete("t.asks", "question-one", "yes")
    testing.drain()

    hipq.complete("t.asks", "question-two", "no")
    testing.drain()
    assert list(node.outputs["answer"]) == [["one", "yes"], ["two", "no"]]


def test_a_response_handler_does_not_read_again_what_the_run_has_read_before_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More lie there than are read at once, so that the next page has to leave it out, too."""
    numbers = list(range(loading.FIRST_PAGE + 3))
    node = flow.start("t.scripted", data={"item": numbers})
    monkeypatch.setattr(SCRIPT, "perform", ask, raising=False)
    testing.drain()
    monkeypatch.setattr(SCRIPT, "perform", hand_on)
    hipq.complete("t.scripted", "item-0", "yes")
    testing.drain()

    assert list(node.outputs["out"]) == numbers
    assert node.inputs["item"].size == 0


@decided_by("lifecycle.wake", without=nothing)
def test_a_node_that_is_resumed_runs_with_what_came_meanwhile(holds: bool) -> None:
    node = flow.start(Double, run=False)
    node.pause()
    node.inputs["number"].write(1)
    testing.drain()
    node.resume()
    testing.drain()

    assert (list(node.outputs["out"]) == [2]) == holds


@flow.component("t.patient", retry=hipq.Fixed(3_600, max_attempts=3), runs_per_minute=1)
class Patient(flow.Component):
    """Is tried again an hour after it has raised, and does not run often."""

    def perform(self, *args: Any) -> Any:
        Recorder.calls.append("perform")
        if args:
            raise CodeError("as asked")

    def shutdown(self) -> None:
        Recorder.calls.append("shutdown")


@pytest.mark.parametrize("args", [[], ["raise"]], ids=["its turn", "its next attempt"])
def test_a_node_whose_run_waits_is_terminated_at_once(args: list[str]) -> None:
    node = flow.start(Patient, args=args)
    testing.drain(errors=False)
    node.run()
    assert testing.due(node) == 0
    assert node.status == "queued"
    node.terminate()
    testing.drain()

    assert node.status == "terminated"
    assert Recorder.calls == ["perform", "shutdown"]


def test_a_node_that_is_terminated_while_its_run_waits_shuts_down_after_the_answer() -> None:
    node = flow.start(Asks, data={"question": ["why"]})
    testing.drain()
    node.terminate()
    testing.drain()
    assert node.status == "terminating"
    hipq.complete("t.asks", "question-why", "because")
    testing.drain()

    assert node.status == "terminated"
    assert list(node.outputs["answer"]) == [["why", "because"]]


# Runs that end otherwise: their node is woken by the transaction that ends them


def cancel(run: Job) -> None:
    hipq.cancel(run)


def time_out(run: Job) -> None:
    """Its policy gives up, in a decision of its own."""
    Job.objects.filter(pk=run.pk).update(deadline=run.update_time)
    recovery.time_out_overdue(get_instance("default"))
    FlowWorker().work()


@pytest.mark.parametrize("end", [cancel, time_out])
@decided_by("runs.dispatching.wake", without=nothing)
def test_a_run_ends_otherwise_than_by_its_worker(
    holds: bool, end: Callable[[Job], None], dispatch: Callable[[], int]
) -> None:
    parent = flow.start(Double, run=False)
    node = parent.spawn("child", Asks, data={"question": ["why"]})
    testing.drain()
    end(job_of(node))
    dispatch()
    node.refresh_from_db()

    assert (node.job_id is None) == holds
    assert (parent.status == "queued") == holds
    assert node.status == "failed"


@pytest.mark.parametrize("in_time", [False, True], ids=["after", "before"])
def test_an_attempt_that_times_out_counts_only_if_it_ends_well_before_the_next_begins(
    in_time: bool, worker: FlowWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is before its marks is only in the memory of its process."""
    node, seen = flow.start("t.scripted", data={"item": [1, 2]}), list[Any]()

    def perform(run: Any) -> None:
        seen.append((node.inputs["item"].peek(9), node.outputs["out"].peek(9)))
        for item in run.each("item"):
            run.out.write([item, run.job.attempt])
            if (item, len(seen)) == (2, 1):
                Job.objects.update(deadline=run.job.start_time)
                assert recovery.time_out_overdue(get_instance("default")) == 1
                if not in_time:
                    FlowWorker().run_until_idle()

    monkeypatch.setattr(SCRIPT, "perform", perform, raising=False)
    worker.run_pass()
    worker.execute()
    worker.save()
    worker.run_until_idle()

    attempt = 1 if in_time else 2
    assert seen == [([1, 2], [])] * attempt
    assert list(node.outputs["out"]) == [[1, attempt], [2, attempt]]
    assert node.status == "completed"


def test_an_answer_comes_to_a_run_whose_message_was_taken_meanwhile() -> None:
    node = flow.start(Asks, data={"question": ["why"]})
    testing.drain()
    assert node.inputs["question"].read() == "why"
    hipq.complete("t.asks", "question-why", "because")
    testing.drain()

    assert node.status == "completed"
    assert list(node.outputs["answer"]) == [["why", "because"]]


def nothing_is_checked(ids: list[int], using: str) -> bool:
    """Stand for the check that all messages were still there."""
    del using
    Message.objects.filter(pk__in=ids).delete()
    return True


@decided_by("runs.ending.delete_messages", without=nothing_is_checked)
def test_a_message_that_somebody_else_has_read_is_not_read_by_the_run(
    holds: bool, worker: FlowWorker
) -> None:
    node = flow.start(Double, data={"number": [1, 2]})
    worker.run_pass()
    worker.execute()
    assert node.inputs["number"].read() == 1
    worker.save()
    with hipq.testing.travel(seconds=2):
        worker.run_until_idle()

    assert (list(node.outputs["out"]) == [4]) == holds


@pytest.mark.parametrize("change", ["set", "del", "nothing"])
def test_a_default_that_comes_while_a_run_executes_stays(change: str, worker: FlowWorker) -> None:
    """The run has read the one before, which it lets be the port's default when it ends."""
    node = flow.start(Sum, inputs={"number": {"mode": "memory"}}, data={"number": [1, 2]})
    port = node.inputs["number"]
    worker.run_pass()
    if change == "set":
        port.default = 3
    elif change == "del":
        del port.default
    worker.execute()
    worker.run_until_idle()

    assert port.default == {"set": 3, "del": flow.NOTHING, "nothing": 2}[change]
    assert Message.objects.filter(as_default=True).count() == (change == "set")


@pytest.mark.parametrize("compares", [True, False])
def test_data_that_come_between_the_look_of_a_run_and_its_end(
    compares: bool, worker: FlowWorker, dispatch: Callable[[], int]
) -> None:
    node = flow.start(Sum)
    worker.run_pass()
    node.inputs["number"].write(1)
    dispatch()
    worker.execute()
    if not compares:
        [result] = worker.batch.lease().results
        result.claim.extra.wakes_seen = flow.Node.objects.get(pk=node.pk).wakes
        worker.batch.take_back([result])
    worker.run_until_idle()

    assert (node.inputs["number"].size == 0) == compares


def test_a_node_that_cannot_run_stops_no_other(dispatch: Callable[[], int]) -> None:
    node, other = flow.start(Sum), flow.start(Sum)
    flow.Node.objects.filter(pk=node.pk).update(job_options={"priority": "high"})
    dispatch()

    assert (node.status, other.status) == ("failed", "queued")
    assert "priority" in flow.get(node.pk).error
    assert dispatch() == 0


@pytest.mark.parametrize("crashes", [False, True], ids=["dispatcher", "sweep"])
def test_a_tree_that_cannot_be_deleted_stops_no_other(
    crashes: bool, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    config, left_alone = get_instance("default"), Isolation[int]("flow", "node")
    kept, other = flow.start(Sum, run=False), flow.start(Sum, run=False)
    refuse(f"OLD.id = {kept.pk}", "hipq_flow_node", "DELETE")
    for node in (kept, other):
        node.terminate(delete=True, force=True)
    if crashes:
        Wake.objects.all().delete()
    for _ in range(2):
        dispatching.dispatch(config, left_alone)
        dispatching.sweep(config, left_alone)

    assert [*flow.Node.objects.all()] == [kept]
    assert not Wake.objects.exists()
    assert caplog.text.count("event=") == caplog.text.count("event=row_left_alone") == 1
    with pytest.raises(DatabaseError, match="too much"):
        kept.delete()
    refuse.end()
    dispatching.sweep(config, left_alone)
    assert not kept.exists()


# Finishing waits for others, but not for long


HELD: dict[str, Callable[[], Any]] = {
    "job": lambda: list(locked(Job.objects.all())),
    "node": lambda: list(locked(flow.Node.objects.all())),
    "port": lambda: list(locked(NodePort.objects.all(), to_delete=True)),
    "message": lambda: list(locked(Message.objects.all(), to_delete=True)),
    "table": lambda: connection.cursor().execute(LOCK_MESSAGES),
}
"""What somebody else may hold that a run needs to finish."""

LET_GO = "SET LOCAL idle_in_transaction_session_timeout = '15s'"
"""Ends who holds it, so that a run that waits for ever fails the test, and does not stop it."""


def book(run: Any, waited: list[float]) -> None:
    """Take a message, and book it in the transaction that ends the run."""
    run.out.write(run.item.read())
    began = time.monotonic()
    try:
        with run.finishing():
            Batch.objects.create(name="booked")
    finally:
        waited.append(time.monotonic() - began)


def booked(node: flow.Node) -> tuple[int, int, int]:
    return Batch.objects.count(), node.inputs["item"].size, node.outputs["out"].size


@pytest.fixture
def finishing_is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it wait for one second."""
    monkeypatch.setattr(finishing, "LOCK_SECONDS", 1)
    monkeypatch.setattr(ending, "LOCK_SECONDS", 1)


@pytest.mark.postgres
@pytest.mark.usefixtures("finishing_is_impatient")
@pytest.mark.parametrize("hold", HELD.values(), ids=HELD)
def test_a_run_that_finishes_is_put_back_where_others_hold_what_it_needs(
    hold: Callable[[], Any], worker: FlowWorker, session: Session, script: Script
) -> None:
    waited: list[float] = []
    script.perform = lambda run: book(run, waited)
    node = flow.start("t.scripted", data={"item": ["paid"]})
    worker.run_pass()
    session.begin()
    session(lambda: connection.cursor().execute(LET_GO))
    session(hold)
    worker.execute()
    session.roll_back()
    worker.save()

    assert waited[0] >= 1
    assert booked(node) == (0, 1, 0)
    assert (job_of(node).state, job_of(node).error[:13]) == (State.RETRY, "snoozed for 1")
    hipq.run_now(job_of(node))
    worker.run_until_idle()
    assert booked(node) == (1, 0, 1)


@pytest.mark.parametrize("fails", [1, 2], ids=["at first", "always"])
def test_an_answer_handler_counts_as_a_whole_also_with_each(fails: int, worker: FlowWorker) -> None:
    node = flow.start(EachAfterAnswer, args=[fails], data={"asked": ["why"], "x": [1, 2]})
    worker.run_until_idle()
    hipq.complete("t.each_after_answer", "key", "yes")
    worker.run_until_idle()
    out, left = list(node.outputs["out"]), [node.inputs[port].peek(9) for port in ("asked", "x")]

    assert Recorder.seen == [([], ["why"], [1, 2])] * 2
    if fails == 1:
        assert (node.status, out, left) == ("completed", ["why", "yes", 1, 2], [[], []])
    else:
        assert (node.status, out, left) == ("failed", [], [["why"], [1, 2]])


@flow.component("t.each_after_answer", retry=hipq.Fixed(0, max_attempts=2))
class EachAfterAnswer(flow.Component):
    """Raises in its response handler, once or always, after it has taken a message."""

    asked, x, out = flow.In(), flow.In(), flow.Out()

    def perform(self, fails: int) -> Any:
        asked = self.asked.read()
        if asked is flow.NOTHING:
            return None
        self.out.write(asked)
        self.job.set_key("key")
        return hipq.WAIT

    def on_response(self, response: Any) -> None:
        node = flow.get(self.node.pk)
        ports = node.outputs["out"], node.inputs["asked"], node.inputs["x"]
        Recorder.seen.append(tuple(port.peek(9) for port in ports))
        self.out.write(response)
        for x in self.each("x"):
            if x == 2 and len(Recorder.seen) <= self.args[0]:
                raise CodeError(response)
            self.out.write(x)
