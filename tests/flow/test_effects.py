"""What a run has done is done in the order of its code; what it wants for itself is not lost."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.models import Job
from tests.concurrency.conftest import Refuse, refuse
from tests.testapp.flows import CodeError, Double, Script

__all__ = ["refuse"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent() -> flow.Node:
    """A node that has not run, with a child to which it may write; that never runs."""
    node = flow.start("t.scripted", run=False)
    node.spawn("child", Double, run=False).pause()
    return node


def run_once(script: Script, perform: Any) -> flow.Node:
    """Let a node run once, and fail if it fails."""
    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain()
    script.perform = None
    return node


def test_a_default_that_is_removed_and_set_again_is_there(script: Script) -> None:
    def perform(run: Any) -> None:
        del run.item.default
        run.item.default = 5

    assert run_once(script, perform).inputs["item"].default == 5


def test_a_default_that_is_set_and_removed_is_gone(script: Script) -> None:
    def perform(run: Any) -> None:
        run.item.default = 5
        del run.item.default

    assert run_once(script, perform).inputs["item"].default is flow.NOTHING


def test_what_is_written_before_and_after_a_child_is_spawned_keeps_its_order(
    script: Script,
) -> None:
    def perform(run: Any) -> None:
        run.out.write(1)
        run.spawn("child", Double, run=False)
        run.out.write_many([2, 3])

    assert run_once(script, perform).outputs["out"].peek(9) == [1, 2, 3]


def test_a_child_is_spawned_for_a_moment(script: Script) -> None:
    moment = datetime(2100, 1, 1, tzinfo=timezone(timedelta(hours=2)))

    def perform(run: Any) -> None:
        run.spawn("child", Double, at=moment)

    node = run_once(script, perform)
    assert node.children["child"].run_time == moment


@pytest.mark.parametrize("at", [datetime(2100, 1, 1), "soon", float("inf")])  # noqa: DTZ001 - it is refused
def test_a_child_is_spawned_for_no_moment_that_is_none(script: Script, at: Any) -> None:
    refused: list[str] = []

    def perform(run: Any) -> None:
        try:
            run.spawn("child", Double, at=at)
        except flow.FlowError as error:
            refused.append(str(error))

    node = run_once(script, perform)
    assert [text[:8] for text in refused] == ["run: at="]
    assert (node.status, node.children) == ("completed", {})


def test_what_is_written_after_a_port_is_disconnected_stays_on_it(
    script: Script, parent: flow.Node
) -> None:
    parent.outputs["out"].connect(parent.children["child"].inputs["number"])

    def perform(run: Any) -> None:
        target = run.child("child").inputs["number"]
        run.out.write(1)
        run.out.disconnect(target)
        run.out.write(2)

    script.perform = perform
    parent.run()
    testing.drain()

    assert parent.children["child"].inputs["number"].peek(9) == [1]
    assert parent.outputs["out"].peek(9) == [2]


def test_what_is_written_between_two_connections_comes_with_the_second(
    script: Script, parent: flow.Node
) -> None:
    def perform(run: Any) -> None:
        target = run.child("child").inputs["number"]
        run.out.connect(target)
        run.out.write(1)
        run.out.disconnect(target)
        run.out.write(2)
        run.out.connect(target)
        run.out.write(3)

    script.perform = perform
    parent.run()
    testing.drain()

    assert parent.children["child"].inputs["number"].peek(9) == [1, 2, 3]


def test_what_is_published_after_a_port_subscribes_is_heard(script: Script) -> None:
    def perform(run: Any) -> None:
        run.publish("before", "/news")
        run.item.channels = ["/news"]
        with flow.group(notify=False):
            run.publish("after", "/news")

    assert run_once(script, perform).inputs["item"].peek(9) == ["after"]


def test_what_is_published_and_written_to_one_port_keeps_its_order(script: Script) -> None:
    node = flow.start("t.scripted", inputs={"item": {"channels": ["/news"]}}, run=False)

    def perform(run: Any) -> None:
        with flow.group(notify=False):
            run.publish(1, "/news")
            run.item.write(2)
            run.publish(3, "/news")

    script.perform = perform
    node.run()
    testing.drain()

    assert node.inputs["item"].peek(9) == [1, 2, 3]


def test_the_order_holds_over_marks_and_the_wait_for_an_answer(
    script: Script, parent: flow.Node
) -> None:
    parent.inputs["item"].write_many([1, 2])

    def ask(run: Any) -> Any:
        for item in run.each("item"):
            run.out.write(item)
            if item == 1:
                run.out.connect(run.child("child").inputs["number"])
        script.perform = go_on
        run.job.set_key("key")
        return hipq.WAIT

    def go_on(run: Any) -> None:
        run.out.write(3)
        run.out.disconnect(run.child("child").inputs["number"])
        run.out.write(4)

    script.perform = ask
    parent.run()
    testing.drain()
    hipq.complete("t.scripted", "key", None)
    testing.drain()

    assert parent.children["child"].inputs["number"].peek(9) == [1, 2, 3]
    assert parent.outputs["out"].peek(9) == [4]


def test_what_is_written_between_jobs_that_are_enqueued_is_stored_at_once(
    script: Script, parent: flow.Node
) -> None:
    target = parent.children["child"].inputs["number"]

    def perform(run: Any) -> None:
        run.out.write(0)
        run.out.connect(target)
        for number in range(1, 20):
            run.enqueue("echo", {"n": number})
            run.out.write(number)

    script.perform = perform
    parent.run()
    with CaptureQueriesContext(connection) as asked:
        testing.drain()

    assert target.peek(99) == [*range(20)]
    stored = [one for one in asked if "hipq_flow_message" in one["sql"] and "INSERT" in one["sql"]]
    assert 1 < len(stored) <= 4
    assert Job.objects.filter(job_type__name="echo").count() == 19


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_node_whose_end_is_refused_shuts_down_if_it_wanted_to(
    script: Script, attempts: int
) -> None:
    def perform(run: Any) -> None:
        run.terminate()
        run.spawn("child", Double, run=False)
        run.spawn("child", Double, run=False)  # the name is taken

    script.perform = perform
    node = flow.start("t.scripted" if attempts == 2 else "t.scripted_patiently")
    testing.drain(errors=False)

    assert node.status == "terminated"
    assert not node.children


@pytest.mark.conformance
def test_a_node_that_the_database_does_not_let_shut_down_fails_and_says_so(
    script: Script, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    refuse("NEW.rest = 'terminating'", table="hipq_flow_node")
    script.perform = lambda run: run.terminate()
    node = flow.start("t.scripted")
    testing.drain(errors=False)

    assert node.status == "failed"
    told = [record for record in caplog.records if "terminate_refused" in record.getMessage()]
    assert len(told) == 2
    assert f"node={node.pk}" in told[0].getMessage()


def test_a_run_that_raises_and_may_not_shut_down_fails_for_good(
    script: Script, refuse: Refuse
) -> None:
    refuse("NEW.rest = 'terminating'", table="hipq_flow_node")

    def perform(run: Any) -> None:
        run.terminate()
        raise CodeError("as asked")

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain(errors=False)

    assert node.status == "failed"
    assert "too much" in str(flow.get(node.pk).error)
