"""Flows of several instances, each in a database of its own, where ids are the same."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.db import connections

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Connection, Message, NodePort
from hipq_django.flow.ports import Port
from tests.testapp.flows import Double, Script

pytestmark = pytest.mark.django_db(databases=["default", "other"])


@flow.component("t.far", instance="other")
def far(x: Any) -> Any:
    """Is declared for another instance only."""
    return x


@hipq.job_type("t.far_job", instance="other")
def far_job(job: hipq.Job) -> Any:
    """Is what a stage of another instance enqueues."""
    return job.job_data["id"]


def test_each_instance_has_the_standard_components() -> None:
    spec = {
        "nodes": {"far": {"component": "t.far"}, "jobs": {"jobs": "t.far_job", "key": "id"}},
        "edges": ["far.out -> jobs.in"],
        "inputs": {"x": "far.x"},
        "outputs": {"done": "jobs.out"},
    }
    graph = flow.start(spec, instance="other", data={"x": [{"id": "a"}]})
    testing.drain(instance="other")

    assert graph.outputs["done"].read()["result"] == "a"
    assert graph.status == "completed"
    names = {found["name"] for found in flow.components(instance="other")}
    assert {"flow.graph", "flow.jobs", "t.far"} <= names
    assert "t.double" not in names


@pytest.mark.parametrize(("code", "instance"), [(Double, "other"), ("t.far", "default")])
def test_a_component_is_of_the_instance_for_which_it_is_declared(code: Any, instance: str) -> None:
    with pytest.raises(flow.UnknownComponentError):
        flow.start(code, instance=instance)
    assert not flow.Node.objects.using("default").exists()
    assert not flow.Node.objects.using("other").exists()


_ids = count(1_000_000, 1_000)


def same_ids() -> tuple[flow.Node, flow.Node]:
    """Return nodes of two databases that have one id, and ports with one id."""
    first = next(_ids)
    found = []
    for instance in ("default", "other"):
        flow.start("flow.connect", run=False, instance=instance)  # SQLite counts from here on
        for model in (flow.Node, NodePort):
            go_on_from(first, model._meta.db_table, instance)
        found.append(flow.start("flow.connect", run=False, instance=instance))
    near, far_one = found
    assert (near.pk, row_of(near)) == (far_one.pk, row_of(far_one))
    return near, far_one


def go_on_from(number: int, table: str, using: str) -> None:
    """Let the next rows of a table have the ids from this number on."""
    sql = "UPDATE sqlite_sequence SET seq = %s WHERE name = %s"
    if connections[using].vendor == "postgresql":
        sql = "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)"
    with connections[using].cursor() as cursor:
        cursor.execute(sql, [number, table] if "UPDATE" in sql else [table, number])


def row_of(node: flow.Node) -> int:
    return node.inputs["in"].row.pk


RUNS: dict[str, Callable[[Any, flow.Node], Any]] = {
    "adopt": lambda run, node: run.adopt(node, "kid"),
    "disown": lambda run, node: run.disown(node),
    "connect": lambda run, node: run.out.connect(node.inputs["in"]),
    "move_to": lambda run, node: run.inputs["item"].move_to(node.inputs["in"]),
}


@pytest.mark.parametrize("act", RUNS.values(), ids=RUNS)
def test_a_run_does_nothing_to_a_node_of_another_instance(
    act: Callable[[Any, flow.Node], Any], script: Script
) -> None:
    """The node or the port of the same id in its own database is another one."""
    near, far_one = same_ids()
    node = flow.start("t.scripted", run=False)
    node.spawn("child", "flow.connect")
    node.inputs["item"].write(1)
    node.adopt(near, "near")
    node.outputs["out"].connect(near.inputs["in"])
    script.perform = lambda run: act(run, far_one)

    with pytest.raises(flow.FamilyError, match="instance"):
        testing.run_inline(node)

    assert near.inputs["in"].size == 0
    assert node.children.keys() == {"child", "near"}
    assert Connection.objects.using("default").count() == 1


OUTSIDE: dict[str, Callable[[Port, Port], Any]] = {
    "connect": lambda source, target: source.connect(target),
    "move_to": lambda source, target: source.move_to(target),
}


@pytest.mark.parametrize("act", OUTSIDE.values(), ids=OUTSIDE)
def test_ports_of_several_instances_are_not_joined(act: Callable[[Port, Port], Any]) -> None:
    near, far_one = same_ids()
    source = flow.start("flow.connect", run=False)
    source.outputs["out"].write(1)

    assert near.inputs["in"] != far_one.inputs["in"]
    with pytest.raises(flow.FamilyError, match="different instances"):
        act(source.outputs["out"], far_one.inputs["in"])
    with pytest.raises(flow.FamilyError, match="is of instance 'other'"):
        source.adopt(far_one, "kid")

    assert source.outputs["out"].size == 1
    assert near.inputs["in"].size == far_one.inputs["in"].size == 0


def test_who_listens_hears_nothing_of_another_instance_in_the_same_database() -> None:
    heard = flow.start("t.double", run=False, inputs={"number": {"channels": ["/news"]}})
    flow.Node.objects.filter(pk=heard.pk).update(instance="other")
    flow.publish("/news", 1)

    assert not Message.objects.exists()
