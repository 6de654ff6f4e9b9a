"""Operators beside each other, readers and dispatchers, each on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from hipq_django import flow
from hipq_django.database import transactions
from hipq_django.database.locks import locked
from hipq_django.flow.admin.forms import fingerprint
from hipq_django.flow.admin.message_pages import drop_message, edit_message
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import Message
from hipq_django.models import Job
from tests.flow.races.conftest import decided_by, end_all
from tests.job_life.actors import COMMIT, END
from tests.job_life.steps import Steps
from tests.testapp.flows import Double, Sum

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Dispatch = Callable[[], int]


@pytest.fixture
def node() -> flow.Node:
    """Return a node whose messages stay where they are."""
    node = flow.start(Sum, run=False)
    node.pause()
    return node


@decided_by("state.locked")
def test_two_set_values_of_one_state(holds: bool, node: flow.Node, steps: Steps) -> None:
    steps.begin("set", partial(node.state.set, a=1), COMMIT)
    steps.begin("set", partial(node.state.set, b=2), END)
    end_all(steps)

    assert (node.state.all() == {"a": 1, "b": 2}) == holds


# Messages


@decided_by("connecting.locked")
def test_a_message_is_moved_while_somebody_reads_it(
    holds: bool, node: flow.Node, steps: Steps
) -> None:
    port, target = node.inputs["number"], node.outputs["out"]
    port.write(1)
    reading = steps.begin("read", port.read, COMMIT)
    steps.begin("move", lambda: port.move_to(target), END)
    end_all(steps)

    assert reading.result == 1
    assert (target.size == 0) == holds


def drop(message: Message) -> None:
    drop_message(message, fingerprint(1))


def edit(message: Message) -> None:
    edit_message(message, fingerprint(1), 2)


def message_on(node: flow.Node) -> Message:
    node.inputs["number"].write(1)
    return Message.objects.select_related("port__node").get()


@decided_by("admin.message_pages.locked")
@pytest.mark.parametrize("verb", [edit, drop])
def test_a_message_is_changed_by_hand_while_somebody_reads_it(
    verb: Callable[[Message], None], holds: bool, node: flow.Node, steps: Steps
) -> None:
    """Who comes too late is told, and does not take it for done."""
    message = message_on(node)
    steps.begin("read", node.inputs["number"].read, COMMIT)
    changing = steps.begin("change", partial(verb, message), END, refusals=(FlowError,))
    end_all(steps)

    assert (changing.refusal is not None) == holds


# Trees


@decided_by("family.locked")
def test_a_child_is_disowned_while_its_graph_is_changed(holds: bool, steps: Steps) -> None:
    graph = flow.start({"nodes": {"one": {"component": "t.double"}}})
    one = graph.children["one"]

    def disown() -> None:
        with transaction.atomic():
            graph.disown("one")

    steps.begin("disown", disown, COMMIT)
    refusals = (flow.FamilyError,)
    applying = steps.begin("apply", partial(graph.apply, {"nodes": {}}), END, refusals=refusals)
    end_all(steps)

    assert (applying.refusal is None) == holds
    assert one.status == "completed"


@decided_by("family.locked")
def test_a_node_is_run_by_force_while_its_doomed_tree_is_deleted(
    holds: bool, steps: Steps, dispatch: Dispatch
) -> None:
    root = flow.start(Double, run=False)
    child = root.spawn("child", Double, run=False)
    child.terminate(force=True)
    dispatch()
    root.terminate(delete=True, force=True)
    steps.begin("dispatch", dispatch, 'delete from "hipq_flow_message"')
    refusals = (flow.NodeDeletedError,)
    forcing = steps.begin("run", partial(child.run, force=True), END, refusals=refusals)
    end_all(steps)

    assert (forcing.refusal is not None) == holds
    assert not root.exists()


# Dispatchers


def lock_job() -> None:
    with transaction.atomic():
        list(locked(Job.objects.all()))


@pytest.mark.parametrize("verb", [flow.Node.run, flow.Node.terminate])
@decided_by("runs.dispatching.locked")
def test_a_dispatcher_does_not_wait_for_a_job_that_somebody_has_locked(
    verb: Callable[[flow.Node], Any],
    holds: bool,
    steps: Steps,
    dispatch: Dispatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each would cost all others a tenth of a second."""
    monkeypatch.setattr(transactions, "LOCK_MILLISECONDS", 60_000)
    node = flow.start(Sum, run=False)
    node.run(wait=3_600)
    dispatch()
    verb(node)
    steps.begin("lock", lock_job, COMMIT)
    waited = not steps.begin("dispatch", dispatch, END).has_ended
    end_all(steps)
    dispatch()

    assert waited != holds
    job = Job.objects.get()
    assert job.scheduled_run_time <= job.update_time
