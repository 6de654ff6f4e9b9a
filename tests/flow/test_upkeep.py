"""What `hipq_prune`, `hipq_status` and `hipq_doctor` do with flows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow import testing
from hipq_django.flow.declaring import find_component
from hipq_django.flow.models import LogEntry, Wake
from hipq_django.flow.upkeep import examine
from hipq_django.job_types.registry import forget, get_declared
from hipq_django.maintenance.retention import prune
from hipq_django.models import Job
from tests.declaring import Declare
from tests.flow.conftest import in_status
from tests.testapp.flows import Recorder

pytestmark = pytest.mark.django_db
Release = Callable[..., None]


def found() -> list[str]:
    return [finding.code for finding in examine(get_instance("default"))]


def test_old_log_entries_are_pruned() -> None:
    flow.log("old")
    LogEntry.objects.update(create_time=timezone.now() - timedelta(days=15))
    flow.log("new")
    assert prune(get_instance("default"), dry_run=True)["flow log"] == 1
    assert prune(get_instance("default"))["flow log"] == 1

    assert LogEntry.objects.count() == 1


def test_jobs_that_a_stage_has_not_handed_on_are_kept(declare: Declare) -> None:
    declare("charge")(lambda job: hipq.WAIT)
    stage = flow.start("flow.jobs", args=["charge", "id"])
    stage.inputs["in"].write({"id": "a"})
    testing.drain()
    stage.pause()
    hipq.complete("charge", "a", "paid")
    prune(get_instance("default"), days=-1)
    assert Job.objects.filter(job_type__name="charge").exists()
    stage.resume()
    testing.drain()
    prune(get_instance("default"), days=-1)

    assert not Job.objects.filter(job_type__name="charge").exists()


def test_the_status_counts_nodes() -> None:
    in_status("failed")
    flow.start(Recorder, data={"a": [1, 2]})
    output = StringIO()
    call_command("hipq_status", stdout=output)
    assert "Flows: 1 completed, 1 failed, 0 with a run, 2 unread, " in output.getvalue()
    output = StringIO()
    call_command("hipq_status", "--json", stdout=output)

    assert json.loads(output.getvalue())["flows"]["unread"] == 2


def wakes_nobody() -> None:
    flow.start(Recorder)
    Wake.objects.update(create_time=timezone.now() - timedelta(seconds=60))


def observes_itself() -> None:
    node = flow.start(Recorder, run=False)
    node.inputs["a"].channels = [f"/flow/node/{node.pk}"]


def is_declared_no_more() -> None:
    component = flow.component("t.gone")(lambda x: x)
    flow.start(component, run=False)
    forget(find_component("default", component))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: flow.start(Recorder, run=False), []),
        (wakes_nobody, ["old_wake"]),
        (observes_itself, ["observes_itself"]),
        (is_declared_no_more, ["undeclared_component"]),
    ],
)
def test_the_doctor_names(make: Callable[[], object], expected: list[str]) -> None:
    make()
    assert found() == expected


def withdraw() -> None:
    """Let no code declare the component `t.released`."""
    if (before := get_declared("default", "t.released")) is not None:
        forget(before)


@pytest.fixture
def release() -> Iterator[Release]:
    """Return what declares `t.released` with some in-ports, in place of what it was."""

    def declare(*ins: str) -> None:
        withdraw()
        ports = {name: flow.In() for name in ins}
        made = type("Released", (flow.Component,), {**ports, "out": flow.Out(), "perform": id})
        flow.component("t.released")(made)

    yield declare
    withdraw()


def test_the_doctor_names_ports_that_a_release_declares_no_more(release: Release) -> None:
    release("old", "kept")
    given = {"given": {}, "kept": {"default": 1}}
    nodes = [flow.start("t.released", inputs=given, run=False) for _ in range(3)]
    nodes[0].set_ports(inputs={"given": {}})
    assert found() == []
    nodes[2].inputs["old"].write("data")
    release("kept")

    [finding] = examine(get_instance("default"))

    assert finding.code == "undeclared_port"
    assert f"node {nodes[0].pk}, and maybe others, has an in-port 'old'" in finding.what
    assert nodes[2].inputs["old"].peek() == ["data"]
    for node in nodes:
        node.set_ports(inputs={"given": {}})
    assert found() == []


def test_the_doctor_names_ports_that_a_release_declares_first(release: Release) -> None:
    release("kept")
    nodes = [flow.start("t.released", run=False) for _ in range(2)]
    release("kept", "new")

    [finding] = examine(get_instance("default"))

    assert finding.code == "missing_port"
    assert f"node {nodes[0].pk}, and maybe others, has no in-port 'new'" in finding.what
    for node in nodes:
        node.inputs["new"].write("data")
    assert found() == []
