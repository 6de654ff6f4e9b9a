"""What tests of flows share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow import testing
from hipq_django.flow.runs import dispatching
from hipq_django.job_types.registry import forget, get_declared
from tests.testapp.flows import SCRIPT, Asks, Recorder, Script, Sum


@pytest.fixture(autouse=True)
def nothing_is_recorded() -> None:
    Recorder.calls.clear()
    Recorder.seen.clear()


@pytest.fixture(autouse=True)
def patient_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a test that has not drained is a ring that never ends."""
    defaults = testing.drain.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "timeout", 60)


@pytest.fixture
def recorder() -> Callable[..., flow.Node]:
    """Return what starts a recorder that does what is asked of it."""

    def start(*perform: str, startup: Any = (), shutdown: Any = (), **options: Any) -> flow.Node:
        node = flow.start(Recorder, run=False, **options)
        node.state.set(perform=list(perform), startup=list(startup), shutdown=list(shutdown))
        node.run()
        return node

    return start


@pytest.fixture
def script() -> Iterator[Script]:
    """Return what says what the next runs of `t.scripted` do, in the test's own thread."""
    yield SCRIPT
    SCRIPT.perform = None


@pytest.fixture
def dispatch() -> Callable[[], int]:
    return lambda: dispatching.dispatch(get_instance("default"))


Hear = Callable[[str], Callable[[], list[Any]]]


@pytest.fixture
def hear() -> Hear:
    """Return what lets a sleeping node listen on a channel, and tells what it has heard."""

    def listen(channel: str) -> Callable[[], list[Any]]:
        listener = flow.start(Sum, inputs={"number": {"channels": [channel]}}, run=False)
        listener.pause()
        return lambda: listener.inputs["number"].peek(1_000)

    return listen


@pytest.fixture
def logged(hear: Hear) -> Callable[[], list[Any]]:
    """Return what tells what was logged, data too: somebody listens."""
    return hear("/flow/log")


@pytest.fixture
def all_is_logged(settings: Any) -> None:
    default = {**settings.HIPQ["default"], "FLOW": {"LOG": "all"}}
    settings.HIPQ = {**settings.HIPQ, "default": default}


RELEASED = "t.of_an_older_release"


def release() -> None:
    """Declare a component, as a release does that has its code."""

    @flow.component(RELEASED)
    def echo(x: Any) -> Any:
        return x


def withdraw() -> None:
    """Let no code declare it any more."""
    declared = get_declared("default", RELEASED)
    assert declared is not None
    forget(declared)


def in_status(status: str) -> flow.Node:
    """Return a node that has come to a status by the public API."""
    if status == "running":  # and waits for an answer
        node = flow.start(Asks, data={"question": ["why"]})
        testing.drain()
        return node
    node = flow.start(Recorder, run=False)
    if status == "completed":
        return node
    if status == "queued":
        node.run()
        return node
    if status in ("suspended", "failed"):
        node.state.set(perform=["suspend" if status == "suspended" else "raise"])
        node.run()
    else:
        node.terminate()
    if status != "terminating":
        testing.drain(errors=False)
    Recorder.calls.clear()
    return node
