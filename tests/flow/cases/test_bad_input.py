"""What a node cannot be started with: it is refused there, and does not hold other nodes up."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.models import Job
from tests.testapp.flows import Double, Script

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "job",
    [
        {"priority": "high"},
        {"priority": 10**30},
        {"throttle_factor": -1},
        {"timeout": 0},
        {"timeout": "long"},
        {"time_windows": 5},
        {"time_windows": ["at night"]},
        {"queue": "No Queue"},
        {"queue": ["default"]},
        {"data": [1]},
        {"data": {"x": "\0"}},
        {"data": {"x": "x" * 999_990}},
        {"key": "order-1"},
        {"priorty": 5},
    ],
)
def test_job_options_are_checked_at_once(job: dict[str, Any]) -> None:
    with pytest.raises(hipq.InvalidJobError):
        flow.start(Double, job=job)

    assert not flow.Node.objects.exists()


def test_job_options_are_those_of_the_runs() -> None:
    windows = ["00:00-24:00"]
    job = {"priority": 7, "throttle_factor": Decimal("0.5"), "timeout": 9, "time_windows": windows}
    node = flow.start(Double, job={**job, "queue": None, "data": {"region": "east"}})

    assert testing.due(node) == 1
    run = Job.objects.get()
    assert (run.priority, run.throttle_factor, run.timeout) == (7, Decimal("0.5"), 9)
    assert run.job_data == {"region": "east", "node": node.pk}


@pytest.mark.parametrize(
    "options",
    [
        {"args": [date(2026, 1, 1)]},
        {"args": ["\0"]},
        {"by": "x" * 201},
        {"by": "\0"},
        {"by": 5},
        {"at": 1e15},
        {"at": 10**400},
        {"at": "tomorrow"},
        {"at": 1e15, "run": False},
        {"on_conflict": "replace"},
    ],
)
@pytest.mark.parametrize("component", [Double, {"nodes": {"a": {"component": "t.double"}}}])
def test_other_options_are_checked_too(component: Any, options: dict[str, Any]) -> None:
    with pytest.raises(flow.FlowError):
        flow.start(component, **options)

    assert not flow.Node.objects.exists()


@pytest.mark.parametrize("name", ["\0", "a\0b", "1" * 5_000, "9" * 50, 1.5, None, True])
def test_what_no_node_can_be_called_finds_nothing(name: Any) -> None:
    assert flow.find(name) is None


@pytest.mark.parametrize("name", ["\0", "*", "", "a b", "x" * 201])
def test_what_no_port_can_be_called_is_unknown(name: str) -> None:
    node = flow.start("t.wild", run=False)

    with pytest.raises(flow.UnknownPortError):
        node.inputs[name]


@pytest.mark.parametrize("channels", [5, "/a", {"/a": 1}, [5]])
def test_channels_are_a_list(channels: Any) -> None:
    with pytest.raises(flow.InvalidPortError):
        flow.start(Double, inputs={"number": {"channels": channels}})


@pytest.mark.parametrize(
    "options",
    [
        {"data": {"number": 5}},
        {"data": {"number": "text"}},
        {"data": [5]},
        {"parent": "x", "name": "a"},
        {"args": 5},
        {"args": "abc"},
        {"inputs": ["number"]},
        {"outputs": 5},
    ],
)
@pytest.mark.parametrize("component", ["t.double", {"nodes": {"a": {"component": "t.double"}}}])
def test_options_of_another_kind_say_what_to_give(component: Any, options: dict[str, Any]) -> None:
    option, value = next(iter(options.items()))

    with pytest.raises(flow.FlowError, match="; give ") as raised:
        flow.start(component, **options)
    assert f"{option}={value!r}" in str(raised.value)
    assert not flow.Node.objects.exists()


@pytest.mark.parametrize("component", [Double, {"nodes": {"a": {"component": "t.double"}}}])
def test_an_option_that_is_unknown_is_refused_with_the_nearest_name(component: Any) -> None:
    with pytest.raises(
        hipq.UnknownOptionError, match="unknown option 'alais', did you mean 'alias'"
    ):
        flow.start(component, alais="shop")  # type: ignore[call-arg]  # what is refused
    assert not flow.Node.objects.exists()


def test_job_options_are_a_dict() -> None:
    with pytest.raises(hipq.InvalidJobError, match=r"job=\[1\]; give a dict"):
        flow.start(Double, job=[1])  # type: ignore[arg-type]  # what is refused


NUL = "a\0"


@pytest.mark.parametrize("entry", [NUL, {"what": NUL}, 5, None, ["text"], {"what": object()}])
def test_entries_that_cannot_be_logged(entry: Any, script: Script) -> None:
    script.perform = lambda run: run.log(entry)
    node = flow.start("t.scripted", run=False)

    with pytest.raises(flow.FlowError, match=r"flow\.log: "):
        flow.log(entry)
    testing.run_inline(node, errors=False)
    assert "flow.log: " in Job.objects.get().error


@pytest.mark.parametrize("value", [NUL, object(), float("nan")])
def test_contexts_are_json(value: Any) -> None:
    refused = pytest.raises(flow.FlowError, match=r"flow\.context: .* cannot be stored as JSON")
    with refused, flow.context(user=value):
        pass


def test_no_name_holds_nul() -> None:
    node = flow.start(Double, run=False, alias="double")
    token = node.lock(10)
    with pytest.raises(flow.InvalidPortError, match="none of them NUL"):
        flow.publish("/" + NUL, 1)
    with pytest.raises(flow.InvalidPortError, match="none of them NUL"):
        node.inputs["number"].channels = ["/" + NUL]
    with pytest.raises(flow.InvalidPortError, match="cannot be stored as JSON"):
        flow.start(Double, inputs={"number": {"label": NUL}})
    with pytest.raises(flow.InvalidAliasError, match="it has 'double'"):
        node.aliases.remove(NUL)
    with pytest.raises(flow.FamilyError, match="it has none"):
        node.disown(NUL)
    assert node.unlock(NUL) is False
    assert token is not None
    assert node.unlock(token)
