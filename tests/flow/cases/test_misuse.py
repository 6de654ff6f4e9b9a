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


@flow.component("t.waiting_generator")
def waiting_generator(x: Any) -> Any:
    """Yields WAIT."""
    yield "out", hipq.WAIT


def test_startup_does_not_wait() -> None:
    node = flow.start(WaitsAtTheEnds, args=[1])
    testing.drain(errors=False)

    assert node.status == "failed"
    assert "startup returned hipq_django.WAIT, but only perform may wait" in Job.objects.get().error


def test_shutdown_does_not_wait() -> None:
    node = flow.start(WaitsAtTheEnds, run=False)
    node.terminate()
    testing.drain(errors=False)

    assert (
        "shutdown returned hipq_django.WAIT, but only perform may wait" in Job.objects.get().error
    )
    assert node.status == "terminated"
    assert "shutdown returned hipq_django.WAIT" in LogEntry.objects.get(node=node).entry["error"]


@pytest.mark.parametrize("component", [waiting_function, waiting_generator])
def test_functions_do_not_wait(component: Any) -> None:
    node = flow.start(component, data={"x": [1]})
    testing.drain(errors=False)

    assert node.status == "failed"
    assert "is a function and returned hipq_django.WAIT; what waits" in Job.objects.get().error


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


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([{"total": 5}], "returned {'total': 5}; write results to out-ports, and return None"),
        ([False], "returned False; write results"),
        ([], "returned WAIT, but it has no method on_response"),
    ],
)
def test_what_a_run_cannot_return(args: list[Any], said: str) -> None:
    node = flow.start(Returns, args=args)
    testing.drain(errors=False)

    assert node.status == "failed"
    assert said in Job.objects.get().error


def test_an_answer_is_not_waited_for_twice() -> None:
    node = flow.start(WaitsTwice)
    testing.drain()
    hipq.complete("t.waits_twice", "key", "yes")
    testing.drain(errors=False)

    assert node.status == "failed"
    assert "on_response returned WAIT, but the answer has come" in Job.objects.get().error


def test_a_run_gathers_no_jobs(script: Script) -> None:
    script.perform = lambda run: run.job.gather([hipq.NewJob("echo"), hipq.NewJob("echo")])
    node = flow.start("t.scripted", run=False)
    with pytest.raises(flow.FlowError, match=r"does not wait for jobs by job\.gather; enqueue"):
        testing.run_inline(node)

    assert not Job.objects.filter(job_type__name="echo").exists()


ACTS: dict[str, Callable[[Any], Any]] = {
    "run": lambda run: run.run(),
    "terminate": lambda run: run.terminate(),
    "delete": lambda run: run.delete(),
    "suspend": lambda run: run.suspend(),
    "write": lambda run: run.out.write(2),
    "state": lambda run: run.state.set(a=2),
    "log": lambda run: run.log("late"),
    "spawn": lambda run: run.spawn("late", "t.double"),
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

    assert "has ended by finishing; return from perform" in caplog.text
    assert node.status == "completed"
    assert list(node.outputs["out"]) == [1]


def test_finishing_twice(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    def perform(run: Any) -> None:
        for number in range(2):
            with run.finishing():
                run.out.write(number)

    script.perform = perform
    node = flow.start("t.scripted")
    testing.drain(errors=False)

    assert "was ended so already; return from the handler" in caplog.text
    assert node.status == "completed"
    assert list(node.outputs["out"]) == [0]


def test_waiting_after_finishing(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    def perform(run: Any) -> Any:
        with run.finishing():
            return hipq.WAIT

    script.perform = perform
    flow.start("t.scripted")
    testing.drain(errors=False)

    assert "returned hipq_django.WAIT, but finishing has ended its run" in caplog.text


def test_suspending_inside_of_finishing(script: Script) -> None:
    def perform(run: Any) -> Any:
        with run.finishing():
            run.suspend()

    script.perform = perform
    node = flow.start("t.scripted")
    testing.run_inline(node, queue=False, errors=False)

    assert "suspend() inside of finishing" in Job.objects.get().error


@pytest.mark.parametrize("option", ["after", "on", "batch"])
def test_a_run_enqueues_no_job_that_follows_others(option: str, script: Script) -> None:
    script.perform = lambda run: run.enqueue("ask_later", {}, **{option: []})
    node = flow.start("t.scripted", run=False)

    with pytest.raises(hipq.InvalidJobError, match=f"a run cannot give {option}"):
        testing.run_inline(node)
    assert Job.objects.count() == 1
