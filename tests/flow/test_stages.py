"""Stages: messages that become jobs, many at once, and come out as they end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow import testing
from hipq_django.flow.models import StagedJob
from hipq_django.flow.runs.companion import Runs
from hipq_django.models import Batch, Job
from tests.concurrency.conftest import Refuse, refuse
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.testapp.flows import CodeError, Script

__all__ = ["refuse"]

pytestmark = pytest.mark.django_db

SPEC = {
    "nodes": {"charge": {"jobs": "charge", "key": "id", "limit": 2}},
    "inputs": {"order": "charge.in"},
    "outputs": {"paid": "charge.out", "failed": "charge.error"},
}


@pytest.fixture(autouse=True)
def charge(declare: Declare) -> Any:
    """A job type that waits for the bank, which answers by the key."""

    @declare("charge")
    def charge(job: Job) -> Any:
        if job.job_data["total"] < 0:
            raise CodeError("less than nothing")
        return hipq.WAIT

    return charge


def order(key: Any, total: int = 70) -> dict[str, Any]:
    return {"id": key, "total": total}


def stage_of(shop: flow.Node) -> flow.Node:
    return shop.children["charge"]


def shop_with(*keys: str) -> flow.Node:
    """Return a shop that has taken these orders."""
    shop = flow.start(SPEC)
    shop.inputs["order"].write_many([order(key) for key in keys])
    testing.drain()
    return shop


def answered(key: str, result: Any = None) -> None:
    hipq.complete("charge", key, result)
    testing.drain()


def jobs() -> list[Job]:
    return list(Job.objects.filter(job_type__name="charge").order_by("pk"))


def test_each_message_becomes_a_job_and_its_end_comes_out() -> None:
    shop = shop_with("a")
    assert [(job.job_key, job.job_data) for job in jobs()] == [("a", order("a"))]
    assert stage_of(shop).status == "suspended"

    answered("a", {"paid": True})

    assert list(shop.outputs["paid"]) == [
        {"data": order("a"), "job": jobs()[0].pk, "result": {"paid": True}}
    ]
    assert not StagedJob.objects.exists()
    assert shop.status == "completed"


def test_there_are_never_more_jobs_than_the_limit() -> None:
    shop = shop_with(*"abcde")
    assert len(jobs()) == 2

    hipq.complete("charge", "a")
    answered("b")
    assert [job.job_key for job in jobs()] == ["a", "b", "c", "d"]

    for key in "cde":
        testing.drain()
        answered(key)
    assert [message["data"]["id"] for message in shop.outputs["paid"]] == list("abcde")


def test_a_job_without_success_comes_out_as_an_error() -> None:
    shop = flow.start(SPEC)
    shop.inputs["order"].write(order("a", -1))
    testing.drain(errors=False)

    [message] = shop.outputs["failed"]
    assert message["data"] == order("a", -1)
    assert message["error"] == "CodeError: less than nothing"
    assert shop.status == "completed"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"total": 7}, "has no text or number under 'id'"),
        ({"id": "x" * 300, "total": 7}, "x"),
    ],
)
def test_a_message_that_can_be_no_job_is_an_error(value: Any, said: str) -> None:
    shop = flow.start(SPEC)
    shop.inputs["order"].write_many([value, order("b")])
    testing.drain()

    [message] = shop.outputs["failed"]
    assert message["data"] == value
    assert said in message["error"]
    assert [job.job_key for job in jobs()] == ["b"]


@pytest.fixture
def small_messages(settings: Settings) -> None:
    own = {**settings.HIPQ["default"], "FLOW": {"MAX_MESSAGE_BYTES": 1_000}}
    settings.HIPQ = {**settings.HIPQ, "default": own}


@pytest.mark.usefixtures("small_messages")
def test_a_result_that_is_too_large_goes_to_error_without_it() -> None:
    shop = shop_with(*"abc")
    hipq.complete("charge", "a", "x" * 1_000)
    answered("b", "paid")

    [message] = shop.outputs["failed"]
    assert (message["data"], message["job"]) == (order("a"), jobs()[0].pk)
    assert "the message has 1,0" in message["error"]
    assert "at most 1,000 are taken (setting FLOW: MAX_MESSAGE_BYTES)" in message["error"]
    assert f"Job {jobs()[0].pk} has its result until it is pruned" in message["error"]
    assert [message["result"] for message in shop.outputs["paid"]] == ["paid"]
    assert [job.job_key for job in jobs()] == ["a", "b", "c"]
    assert shop.status == "suspended"


def test_two_messages_with_one_key_both_come_out() -> None:
    shop = flow.start(SPEC)
    shop.inputs["order"].write_many([order("a"), order("a", 71)])
    testing.drain()
    answered("a", "paid")

    assert [m["data"]["total"] for m in shop.outputs["paid"]] == [70, 71]
    assert len(jobs()) == 1


def test_what_came_with_a_message_goes_with_its_end() -> None:
    shop = flow.start(SPEC)
    with flow.context(user="ann"):
        shop.inputs["order"].write(order("a"))
    testing.drain()
    answered("a", "paid")

    packet = shop.outputs["paid"].packet()
    assert packet is not None
    assert packet.context["user"] == "ann"


def test_an_end_that_nobody_told_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = shop_with("a")
    with monkeypatch.context() as patched:
        patched.setattr("hipq_django.extensions.registered", [])
        hipq.complete("charge", "a", "paid")
    assert not testing.due(stage_of(shop))
    Runs().sweep(get_instance("default"))
    testing.drain()

    assert len(list(shop.outputs["paid"])) == 1


def test_a_job_that_was_deleted_is_an_error() -> None:
    shop = shop_with("a")
    Job.objects.filter(job_type__name="charge").delete()
    Runs().sweep(get_instance("default"))
    testing.drain()

    [message] = shop.outputs["failed"]
    assert "its result is unknown" in message["error"]


@pytest.mark.conformance
def test_a_job_that_the_database_refuses_stops_no_other(refuse: Refuse) -> None:
    """A trigger of the project's refuses it, say; its place is another's at once."""
    refuse("NEW.job_key = 'a'", when="INSERT")
    shop = shop_with(*"abcdefg")
    assert [job.job_key for job in jobs()] == ["b", "c"]
    for key in "bcdefg":
        answered(key)

    [failed] = shop.outputs["failed"]
    assert failed["data"] == order("a")
    assert "too much" in failed["error"]
    assert shop.outputs["paid"].size == 6
    assert shop.status == "completed"


@pytest.mark.conformance
@pytest.mark.postgres
def test_what_the_database_says_of_a_refused_job_is_masked(declare: Declare) -> None:
    declare("pay", sensitive=["card"])(lambda job: hipq.WAIT)
    stage = flow.start("flow.jobs", args=["pay", "id"], run=False)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no card like %', NEW.job_data->>'card'; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON hipq_job FOR EACH ROW "
            "WHEN (NEW.job_key = 'a') EXECUTE FUNCTION refuse()"
        )
    stage.inputs["in"].write(order("a") | {"card": "4111 1111"})
    testing.drain()

    assert "no card like •••" in stage.outputs["error"].read()["error"]


def test_a_stage_without_key(declare: Declare) -> None:
    @declare.task("resize")
    def resize(size: int) -> int:
        return 2 * size

    stage = flow.start("flow.jobs", args=["resize"])
    stage.inputs["in"].write_many([{"size": 1}, {"size": 2}, {"width": 3}])
    testing.drain()

    assert [message["result"] for message in stage.outputs["out"]] == [2, 4]
    assert "resize" in stage.outputs["error"].read()["error"]


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"jobs": "chrage"}, "nodes.charge.jobs: 'chrage' is no declared job type"),
        ({"jobs": "charge", "limit": 0}, "nodes.charge: flow.jobs: limit=0;"),
        ({"jobs": "charge", "component": "t.double"}, "nodes.charge: it has no key 'component'"),
    ],
)
def test_a_stage_that_cannot_be_is_refused(node: Any, said: str) -> None:
    with pytest.raises(flow.GraphError, match=said.replace(".", r"\.")):
        flow.start({"nodes": {"charge": node}})

    assert not flow.Node.objects.exists()


# What runs do with jobs


@pytest.fixture
def component() -> Callable[..., flow.Node]:
    """Return what starts a node of a component whose code is a function of it."""

    def start(code: Callable[[flow.Component], Any], **options: Any) -> flow.Node:
        @flow.component("t.of_code", **options)
        class OfCode(flow.Component):
            value, out = flow.In(name="in"), flow.Out()

            def perform(self) -> Any:
                return code(self)

        return flow.start(OfCode, run=False)

    return start


def test_a_run_enqueues_jobs_when_it_ends(component: Any) -> None:
    def code(self: flow.Component) -> None:
        self.enqueue("charge", self.inputs["in"].read(), job_key="a")
        if self.job.attempt == 1:
            raise CodeError

    node = component(code, retry=hipq.Fixed(0, max_attempts=2))
    node.inputs["in"].write(order("a"))
    testing.drain(errors=False)

    assert [job.job_key for job in jobs()] == ["a"]


MOMENT = datetime(2131, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({"scheduled_run_time": MOMENT}, {"scheduled_run_time": MOMENT}),
        ({"time_windows": [hipq.TimeWindow("05:00", "07:00")]}, {"time_windows": ["05:00-07:00"]}),
        ({"job_key": "a", "priority": None, "delay": 1.5, "timeout": 60}, {"timeout": 60.0}),
    ],
    ids=["moment", "windows", "plain"],
)
def test_a_run_enqueues_a_job_with_the_options_of_enqueue(
    options: dict[str, Any], stored: dict[str, Any], script: Script
) -> None:
    """They are kept as JSON: the run may wait for its answer first."""

    def perform(run: Any) -> Any:
        run.enqueue("charge", order("a"), **options)
        run.job.set_key("asked")
        return hipq.WAIT

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain()
    script.perform = None
    assert jobs() == []
    hipq.complete("t.scripted", "asked")
    testing.drain()

    [job] = jobs()
    assert {name: getattr(job, name) for name in stored} == stored
    if "delay" in options:
        waited = job.scheduled_run_time - job.create_time
        assert abs(waited.total_seconds() - options["delay"]) < 1
    assert node.status == "completed"


@pytest.mark.parametrize("returns", [False, True])
def test_a_run_that_ends_with_a_tuple_leaves_the_others_to_the_next_run(
    component: Any, returns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def code(self: flow.Component) -> None:
        for value in self.each("in"):
            self.outputs["out"].write(value)
            with self.finishing():
                Batch.objects.create(name=value)
            if returns:
                return

    node = component(code)
    node.inputs["in"].write_many(["a", "b", "c"])
    HandWorker().run_until_idle()

    assert list(Batch.objects.order_by("pk").values_list("name", flat=True)) == ["a", "b", "c"]
    assert list(node.outputs["out"]) == ["a", "b", "c"]
    assert (node.status, node.inputs["in"].size) == ("completed", 0)
    assert flow.Node.objects.get(pk=node.pk).runs == 3
    assert "has ended" not in caplog.text


def test_a_run_that_is_over_cannot_finish(component: Any) -> None:
    def code(self: flow.Component) -> None:
        self.outputs["out"].write(self.inputs["in"].read())
        hipq.cancel(self.job)
        with self.finishing():
            Batch.objects.create(name="too late")

    node = component(code)
    node.inputs["in"].write("paid")
    testing.drain(errors=False)

    assert not Batch.objects.exists()
    assert node.inputs["in"].size == 1
    assert node.outputs["out"].size == 0
    assert node.status == "failed"
