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


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(
        ({"job": job}, hipq.InvalidJobError, "")
        for job in (
            {"priority": "high"}, {"time_windows": ["at night"]}, {"data": [1]},
            {"data": {"x": "x" * 999_990}}, {"key": "order-1"}, {"priorty": 5},
        )
    ),
    ({"args": [date(2026, 1, 1)]}, flow.FlowError, ""),
    ({"args": 5}, flow.FlowError, "perform cannot be called with the arguments"),
    ({"at": 1e15}, flow.FlowError, ""),
    ({"at": "tomorrow", "run": False}, flow.FlowError, ""),
    ({"alais": "shop"}, hipq.UnknownOptionError, "option 'alais', did you mean 'alias'"),
    ({"inputs": {"number": {"channels": "/a"}}}, flow.InvalidPortError, ""),
]  # fmt: skip


@pytest.mark.parametrize(("options", "error", "said"), WRONG)
@pytest.mark.parametrize("component", [Double, {"nodes": {"a": {"component": "t.double"}}}])
def test_options_are_checked_at_once(
    component: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said or None):
        flow.start(component, **options)

    assert not flow.Node.objects.exists()


def test_job_options_are_those_of_the_runs() -> None:
    windows = ["00:00-24:00"]
    job = {"priority": 7, "throttle_factor": Decimal("0.5"), "timeout": 9, "time_windows": windows}
    node = flow.start(Double, job={**job, "queue": None, "data": {"region": "east"}})

    assert testing.due(node) == 1
    run = Job.objects.get()
    assert (run.priority, run.throttle_factor, run.timeout) == (7, Decimal("0.5"), 9)
    assert run.job_data == {"region": "east", "node": node.pk}


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


@pytest.mark.parametrize("wrong", [NUL, "a\ud800"])
def test_no_name_holds_what_databases_refuse(wrong: str) -> None:
    node = flow.start(Double, run=False, alias="double")
    with pytest.raises(flow.InvalidPortError, match="none of them NUL"):
        flow.publish(f"/{wrong}", 1)
    with pytest.raises(flow.InvalidPortError, match="none of them NUL"):
        node.inputs["number"].channels = [f"/{wrong}"]
    with pytest.raises(flow.InvalidPortError, match="cannot be stored as JSON"):
        flow.start(Double, inputs={"number": {"label": wrong}})
    with pytest.raises(flow.FamilyError, match="child name"):
        node.spawn(wrong, Double, run=False)


# Arguments of another kind: (the call, the error, what it is given, what it says)
