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
from hipq_django.flow.values import Effects, Write
from hipq_django.models import Job
from tests.concurrency.conftest import Refuse, refuse
from tests.testapp.flows import Double, Script

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


@pytest.mark.parametrize("last", [5, flow.NOTHING])
def test_of_defaults_that_a_run_sets_and_removes_the_last_counts(last: Any, script: Script) -> None:
    def perform(run: Any) -> None:
        for default in (4, flow.NOTHING, 4, last):
            run.item.default = default

    assert run_once(script, perform).inputs["item"].default == last


def test_a_child_is_spawned_for_a_moment(script: Script) -> None:
    moment = datetime(2100, 1, 1, tzinfo=timezone(timedelta(hours=2)))

    def perform(run: Any) -> None:
        run.spawn("child", Double, at=moment)

    node = run_once(script, perform)
    assert node.children["child"].run_time == moment


def test_what_is_published_after_a_port_subscribes_is_heard(script: Script) -> None:
    def perform(run: Any) -> None:
        run.publish("before", "/news")
        run.item.channels = ["/news"]
        with flow.group(notify=False):
            run.publish("after", "/news")

    assert run_once(script, perform).inputs["item"].peek(9) == ["after"]


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


def test_effects_that_an_older_release_has_stored_are_read_in_their_order() -> None:
    """It kept what was written before the first verb apart, and later writes among the verbs."""
    write = {"place": [1, "out", "a"], "value": 1, "context": {}, "as_default": False}
    write |= {"notify": True, "log": True}
    stored = {
        "taken": [7], "writes": [write], "state": {}, "unset": [], "logs": [], "started": True,
        "verbs": [["spawn", ["t.x"], {}], ["write", [{**write, "value": 2}], {}]],
        "has_changed_ways": True,
    }  # fmt: skip

    effects = Effects.from_json(stored)

    first, spawned, last = effects.acts
    assert isinstance(first, Write)
    assert isinstance(last, Write)
    assert (first.value, spawned, last.value) == (1, ("spawn", ["t.x"], {}), 2)
    assert (effects.taken, effects.started) == ([7], True)
