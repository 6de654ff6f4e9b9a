"""Writers, runs and those who change ports, on connections whose transactions overlap."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow import statements
from hipq_django.flow.models import Connection, Message, Node, NodePort
from hipq_django.flow.runs import dispatching
from tests.concurrency.sessions import Session
from tests.flow.races.conftest import FlowWorker, decided_by, end_all
from tests.job_life.actors import COMMIT, END
from tests.job_life.steps import Steps
from tests.testapp.flows import Double, Recorder, Sum

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]
GONE = (flow.UnknownPortError, flow.NodeDeletedError)


@flow.component("t.collects")
class Collects(flow.Component):
    """Hands on all that lies there as one list."""

    x, out = flow.In(), flow.Out()

    def perform(self) -> None:
        values = list(self.x)
        if values:
            self.out.write(values)


def collected(node: flow.Node) -> list[Any]:
    return [value for values in node.outputs["out"].peek(100) for value in values]


def sleeping(component: Any = Sum) -> flow.Node:
    """Return a node whose messages stay where they are."""
    node = flow.start(component, run=False)
    node.pause()
    return node


def orphans() -> int:
    """Return how many messages and connections have lost a port, and how many ports their node."""
    ports, nodes = NodePort.objects.values("pk"), Node.objects.values("pk")
    lost = [
        Message.objects.exclude(port__in=ports),
        Connection.objects.exclude(source__in=ports, target__in=ports),
        NodePort.objects.exclude(node__in=nodes),
    ]
    return sum(rows.count() for rows in lost)


# Writers


@pytest.mark.usefixtures("nobody_waits")
def test_a_writer_whose_transaction_stays_open_stops_nobody(
    session: Session, worker: FlowWorker
) -> None:
    source, target = flow.start(Collects, run=False), sleeping()
    source.outputs["out"].connect(target.inputs["number"])
    session.begin()
    session(lambda: source.inputs["x"].write("held"))
    session(lambda: source.outputs["out"].write("held, too"))

    source.inputs["x"].write_many([1, 2])
    source.state.set(seen=True)
    worker.run_until_idle()
    assert target.inputs["number"].peek(9) == [[1, 2]]
    source.outputs["out"].write("a writer beside it")
    session.commit()
    worker.run_until_idle()

    found = target.inputs["number"].peek(9)
    assert found == ["held, too", [1, 2], "a writer beside it", ["held"]]


@pytest.mark.usefixtures("nobody_waits")
def test_a_doomed_tree_whose_port_is_written_to_stops_no_dispatcher(
    session: Session, worker: FlowWorker
) -> None:
    doomed, other = flow.start(Double, run=False), flow.start(Double, run=False)
    session.begin()
    session(lambda: doomed.inputs["number"].write(1))
    doomed.terminate(delete=True)
    other.inputs["number"].write(5)
    worker.run_until_idle()
    assert (doomed.status, other.outputs["out"].read()) == ("terminated", 10)
    session.commit()
    worker.run_until_idle()
    dispatching.sweep(get_instance("default"))

    assert not doomed.exists()
    assert orphans() == 0


def test_the_order_of_a_writer_holds_where_a_run_reads_several_pages(
    session: Session, worker: FlowWorker
) -> None:
    """One transaction writes before and after the others' messages, and is committed between."""
    node = flow.start(Collects, run=False)
    port = node.inputs["x"]
    session.begin()
    session(lambda: port.write("first"))
    port.write_many(range(300))
    session(lambda: port.write("second"))
    worker.run_pass()
    session.commit()
    worker.execute()
    worker.run_until_idle()

    seen = collected(node)
    assert seen.index("first") < seen.index("second")
    assert [value for value in seen if isinstance(value, int)] == list(range(300))
    assert len(seen) == 302


# Those who change ports


@decided_by("connecting.locked")
def test_what_a_run_writes_while_its_port_is_connected(
    holds: bool, steps: Steps, worker: FlowWorker
) -> None:
    source, target = flow.start(Double, data={"number": [1]}), sleeping()
    out, into = source.outputs["out"], target.inputs["number"]
    worker.run_pass()
    worker.execute()
    steps.begin("connect", lambda: out.connect(into), COMMIT)
    steps.begin("end", worker.save, END)
    end_all(steps)
    worker.run_until_idle()

    assert (out.size == 0 and into.peek(2) == [2]) == holds


@decided_by("statements.row_lock")
def test_what_is_written_while_a_port_is_connected(holds: bool, steps: Steps) -> None:
    source, target = sleeping(), sleeping()
    out, into = source.outputs["out"], target.inputs["number"]
    steps.begin("write", lambda: out.write(1), COMMIT)
    steps.begin("connect", lambda: out.connect(into), END)
    end_all(steps)

    assert (out.size == 0 and into.peek(2) == [1]) == holds


def remove_port(node: flow.Node) -> Any:
    return node.set_ports(inputs={})


def delete(node: flow.Node) -> Any:
    return node.delete()


def with_extra_port() -> flow.Node:
    node = flow.start(Sum, inputs={"extra": {}}, run=False)
    node.terminate(force=True)
    return node


@decided_by("statements.row_lock")
@pytest.mark.parametrize("verb", [remove_port, delete])
def test_a_port_that_is_written_to_goes_with_what_was_written(
    verb: Callable[[flow.Node], Any], holds: bool, steps: Steps
) -> None:
    node = with_extra_port()
    steps.begin("write", lambda: node.inputs["extra"].write(1), COMMIT)
    steps.begin(verb.__name__, lambda: verb(node), END)
    end_all(steps)

    assert (orphans() == 0) == holds


@decided_by("creating.locked", "family.locked")
@pytest.mark.parametrize("verb", [remove_port, delete])
def test_a_port_that_goes_is_written_to_no_more(
    verb: Callable[[flow.Node], Any], holds: bool, steps: Steps
) -> None:
    node = with_extra_port()
    port = node.inputs["extra"]
    # Not at the commit: a row that is deleted is locked in any case.
    steps.begin(verb.__name__, lambda: verb(node), 'delete from "hipq_flow_message"')
    writing = steps.begin("write", lambda: port.write(1), COMMIT, refusals=GONE)
    end_all(steps)

    assert (isinstance(writing.refusal, GONE) and orphans() == 0) == holds


@decided_by("ports.for_key_share")
def test_a_port_that_a_wildcard_stands_for_goes_with_what_was_written(
    holds: bool, steps: Steps
) -> None:
    node = flow.start("t.wild", run=False)
    node.terminate(force=True)

    def write() -> None:
        with transaction.atomic():
            node.inputs["new"].write(1)

    steps.begin("write", write, COMMIT)
    steps.begin("delete", node.delete, END)
    end_all(steps)

    assert not node.exists()
    assert (orphans() == 0) == holds


@decided_by("connecting.locked")
@pytest.mark.parametrize("end", ["source", "target"])
def test_a_port_that_is_being_connected_goes_with_its_connection(
    end: str, holds: bool, steps: Steps
) -> None:
    source, target = sleeping(), sleeping()
    doomed = {"source": source, "target": target}[end].terminate(force=True)
    out, into = source.outputs["out"], target.inputs["number"]
    steps.begin("connect", lambda: out.connect(into), COMMIT)
    deleting = steps.begin("delete", doomed.delete, END)
    waited = not deleting.has_ended
    end_all(steps)

    assert not doomed.exists()
    assert (waited and orphans() == 0) == holds


@decided_by("statements.row_lock")
def test_a_port_is_disconnected_once_what_is_being_written_was_delivered(
    holds: bool, steps: Steps
) -> None:
    source, target = sleeping(), sleeping()
    out, into = source.outputs["out"], target.inputs["number"]
    out.connect(into)
    steps.begin("write", lambda: out.write(1), COMMIT)
    disconnecting = steps.begin("disconnect", out.disconnect, END)
    waited = not disconnecting.has_ended
    end_all(steps)

    assert waited == holds
    assert into.peek(2) == [1]
    assert not Connection.objects.exists()


ALONE = re.sub(r"UNION.*?source_id = r.id", "", statements._PLACES, flags=re.DOTALL)
"""Stands for the statement that locks ports together: it locks one after the other."""


@decided_by("statements._PLACES", without=ALONE)
def test_a_writer_and_one_who_deletes_do_not_wait_for_each_other(holds: bool, steps: Steps) -> None:
    """The port that is reached has the lower id: who deletes both locks it first."""
    first = sleeping()
    second = first.spawn("child", Sum, run=False)
    second.outputs["out"].connect(first.inputs["number"])
    first.terminate(recursive=True, force=True)
    out = second.outputs["out"]
    writing = steps.begin("write", lambda: out.write(1), "select source_id, target_id")
    steps.begin("delete", first.delete, END)
    if holds:
        steps.go_on(writing, END)
        end_all(steps)
        assert not first.exists()
        assert orphans() == 0
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(writing, END)


@decided_by("connecting.locked")
def test_connections_that_together_would_be_a_ring(holds: bool, steps: Steps) -> None:
    a, b, c, d = (sleeping().outputs["out"] for _ in range(4))
    a.connect(b)
    c.connect(d)
    steps.begin("connect", lambda: b.connect(c), COMMIT)
    two = steps.begin("connect", lambda: d.connect(a), END, refusals=(flow.FamilyError,))
    end_all(steps)

    assert isinstance(two.refusal, flow.FamilyError) == holds
    if holds:
        a.write(1)
        assert d.peek(2) == [1]


def read(node: flow.Node) -> Any:
    return node.inputs["number"].read()


@decided_by("ports.locked")
def test_a_message_is_read_by_one_of_two(holds: bool, steps: Steps) -> None:
    node = sleeping()
    node.inputs["number"].write_many([1, 2])
    one = steps.begin("read", lambda: read(node), COMMIT)
    two = steps.begin("read", lambda: read(node), END)
    end_all(steps)

    assert (one.result, two.result) == (1, 2 if holds else 1)
    assert Recorder.calls == []
