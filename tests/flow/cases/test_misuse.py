"""What the code of a component must not do says so, by an error of its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import LogEntry
from hipq_django.models import Job
from tests.testapp.flows import Script

pytestmark = pytest.mark.django_db(transaction=True)


@flow.component("t.waits_at_the_ends")
class WaitsAtTheEnds(flow.Component):
    """Returns WAIT where nothing can wait."""

    def startup(self) -> Any:
        return hipq.WAIT if self.args else None

    def perform(self, *args: Any) -> Any:
        pass

    def shutdown(self) -> Any:
        return hipq.WAIT

    def on_response(self, response: Any) -> None:
        pass


@flow.component("t.waiting_function")
def waiting_function(x: Any) -> Any:
    """Returns WAIT."""
    return hipq.WAIT


@flow.component("t.returns")
class Returns(flow.Component):
    """Returns what a run cannot return."""

    def perform(self, *args: Any) -> Any:
        return args[0] if args else hipq.WAIT


@flow.component("t.waits_twice")
class WaitsTwice(flow.Component):
    """Wants to wait for a second answer."""

    def perform(self) -> Any:
        self.job.set_key("key")
        return hipq.WAIT

    def on_response(self, response: Any) -> Any:
        return hipq.WAIT


RETURNED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "startup": (
        WaitsAtTheEnds,
        {"args": [1]},
        "startup returned hipq_django.WAIT, but only",
    ),
    "function": (waiting_function, {"data": {"x": [1]}}, "is a function and returned hipq"),
    "dict": (Returns, {"args": [{"a": 5}]}, "returned {'a': 5}; write results to out-ports"),
    "no on_response": (Returns, {}, "returned WAIT, but it has no method on_response"),
    "twice": (WaitsTwice, {}, "on_response returned WAIT, but the answer has come"),
}


@pytest.mark.parametrize(("component", "options", "said"), RETURNED.values(), ids=RETURNED)
def test_what_code_cannot_return(component: Any, options: dict[str, Any], said: str) -> None:
    node = flow.start(component, **options)
    testing.drain(errors=False)
    if component is WaitsTwice:
        hipq.complete("t.waits_twice", "key", "yes")
        testing.drain(errors=False)

    assert node.status == "failed"
    assert said in Job.objects.get().error


def test_shutdown_does_not_wait() -> None:
    node = flow.start(WaitsAtTheEnds, run=False)
    node.terminate()
    testing.drain(errors=False)

    assert (
        "shutdown returned hipq_django.WAIT, but only perform may wait" in Job.objects.get().error
    )
    assert node.status == "terminated"
    assert "shutdown returned hipq_django.WAIT" in LogEntry.objects.get(node=node).entry["error"]


def test_a_run_gathers_no_jobs(script: Script) -> None:
    script.perform = lambda run: run.job.gather([hipq.NewJob("echo"), hipq.NewJob("echo")])
    node = flow.start("t.scripted", run=False)
    with pytest.raises(flow.FlowError, match=r"does not wait for jobs by job\.gather; enqueue"):
        testing.run_inline(node)

    assert not Job.objects.filter(job_type__name="echo").exists()


ACTS: dict[str, Callable[[Any], Any]] = {
    "run": lambda run: run.run(),
    "suspend": lambda run: run.suspend(),
    "write": lambda run: run.out.write(2),
    "spawn": lambda run: run.spawn("late", "t.double"),
    "finish": lambda run: run.finishing().__enter__(),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_after_finishing_nothing_is_done_silently(
    act: Callable[[Any], Any], script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    def perform(run: Any) -> None:
        with run.finishing():
            run.out.write(1)
        act(run)

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain(errors=False)

    assert "; return from " in caplog.text
    assert node.status == "completed"
    assert list(node.outputs["out"]) == [1]


def test_a_run_that_finishes_does_not_wait(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    def perform(run: Any) -> Any:
        with run.finishing():
            return hipq.WAIT

    script.perform = perform
    flow.start("t.scripted")
    testing.drain(errors=False)

    assert "returned hipq_django.WAIT, but finishing has ended its run" in caplog.text
