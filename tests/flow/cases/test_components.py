"""How components are declared, and what is told of them."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Message
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.worker import WorkerProcess


def perform(self: flow.Component) -> None:
    """Stand for code that is never called."""


WRONG_PORTS: dict[str, tuple[dict[str, Any], str]] = {
    "like a method": (
        {"run": flow.In()},
        r"port 'run' is named like a method of components; name the attribute otherwise: "
        r"run_port = flow\.In\(name=\"run\"\)",
    ),
    "like what it has": ({"state": flow.Out()}, "port 'state' is named like a method"),
    "twice": ({"a": flow.In(name="x"), "b": flow.In(name="x")}, "declares in-port 'x' twice"),
    "no name": ({"a": flow.In(name="no name")}, "port name 'no name': use letters"),
    "no type": ({"a": flow.In(set)}, "type 'set' is none of JSON's"),
    "misspelt": ({"a": flow.In(defualt=1)}, "unknown option 'defualt', did you mean 'default'"),
    "swapped": ({"a": flow.In(mdoe="memory")}, "unknown option 'mdoe', did you mean 'mode'"),
    "singular": ({"a": flow.Out(channel=["/a"])}, "unknown option 'channel', did you mean"),
    "no default": ({"a": flow.In(int, default="1")}, "port 'a' takes int"),
}


@pytest.mark.parametrize(("ports", "why"), WRONG_PORTS.values(), ids=WRONG_PORTS)
def test_ports_that_cannot_be_declared(ports: dict[str, Any], why: str) -> None:
    wrong = type("Wrong", (flow.Component,), {"perform": perform, **ports})

    with pytest.raises(hipq.InvalidJobTypeError, match=rf"component 't\.wrong'.*{why}"):
        flow.component("t.wrong")(wrong)
    assert "t.wrong" not in [component["name"] for component in flow.components()]


@pytest.mark.parametrize(
    "code",
    [type("NoPerform", (flow.Component,), {}), type("NoComponent", (), {"perform": perform})],
)
def test_a_class_without_perform_is_no_component(code: type) -> None:
    with pytest.raises(
        hipq.InvalidJobTypeError, match=r"needs to be a flow\.Component with a method"
    ):
        flow.component("t.wrong")(code)


async def yields_later(x: Any) -> Any:
    yield x


def by_position(x: Any, /) -> Any:
    return x


def all_of_them(*xs: Any) -> Any:
    return xs


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (yields_later, "the function is async and yields"),
        (by_position, "parameter 'x' cannot be given by its name"),
        (all_of_them, "parameter 'xs' cannot be given by its name"),
    ],
)
def test_a_function_that_no_run_could_call_is_no_component(function: Any, why: str) -> None:
    with pytest.raises(hipq.InvalidJobTypeError, match=why):
        flow.component("t.wrong")(function)


@pytest.mark.parametrize("method", ["perform", "startup", "shutdown", "on_response"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_method_that_yields_is_refused(method: str, is_async: bool) -> None:
    def plain(self: Any, *args: Any) -> Any:
        yield

    async def later(self: Any, *args: Any) -> Any:
        yield

    code = later if is_async else plain
    code.__name__ = method
    wrong = type("Wrong", (flow.Component,), {"perform": perform, method: code})
    with pytest.raises(hipq.InvalidJobTypeError, match=f"{method} yields; write results to out-"):
        flow.component("t.wrong")(wrong)


def test_a_name_is_declared_once() -> None:
    with pytest.raises(hipq.InvalidJobTypeError, match=r"job type 't\.add' is declared twice"):
        flow.component("t.add")(lambda x: x)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("runaway", "terminat", "did you mean 'terminate'"),
        ("runaway", None, "known are slow, terminate"),
        ("wake_parent", "change", "did you mean 'changes'"),
        ("batch", 0, "give a number from 1 to 1,000,000"),
        ("batch", "many", "give a number from 1 to 1,000,000"),
        ("batch", True, "give a number from 1 to 1,000,000"),
        ("runs_per_minute", 1.5, "give a number from 1 to 1,000,000"),
        ("public", "no", "give True or False"),
        ("log_data", "yes", "give True or False"),
        ("status_publish", 0, "give True or False"),
        ("unique", True, "is not for components"),
    ],
)
def test_options_that_components_do_not_take(option: str, value: Any, why: str) -> None:
    with pytest.raises(hipq.InvalidJobTypeError, match=rf"component 't\.wrong': {option}=.*{why}"):
        flow.component("t.wrong", **{option: value})


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("publik", "public"),
        ("retyr", "retry"),
        ("timeouts", "timeout"),
        ("run_per_minute", "runs_per_minute"),
        ("queu", "queue"),
        ("out", "outs"),
    ],
)
def test_options_that_are_misspelt_are_not_kept_as_meta(option: str, near: str) -> None:
    options: dict[str, Any] = {option: 1}
    with pytest.raises(
        hipq.UnknownOptionError,
        match=rf"component 't\.wrong': unknown option '{option}', did you mean '{near}'\?",
    ):
        flow.component("t.wrong", **options)


@pytest.mark.django_db
def test_ports_of_nodes_are_not_given_misspelt_options() -> None:
    with pytest.raises(flow.InvalidPortError, match="unknown option 'type_', did you mean 'type'"):
        flow.start("t.add", inputs={"x": {"type_": "int"}})


def test_a_component_has_a_name() -> None:
    with pytest.raises(hipq.InvalidJobTypeError, match="component has no name"):

        @flow.component  # type: ignore[arg-type]  # what is refused
        def code(x: Any) -> Any:
            return x


@flow.component("t.sorts", outs=["*"])
def sorts(x: Any) -> Any:
    """Yields to ports that are not there yet."""
    yield x["to"], x["value"]


@pytest.mark.django_db
def test_a_function_may_yield_to_any_port() -> None:
    node = flow.start(sorts, data={"x": [{"to": name, "value": name * 2} for name in "abb"]})
    testing.drain()

    assert {name: list(port) for name, port in node.outputs.items()} == {
        "a": ["aa"], "b": ["bb", "bb"],
    }  # fmt: skip


@flow.component("t.of_a_queue", queue="partner")
def of_a_queue(x: Any) -> Any:
    """Is run by workers of another queue."""
    return x


def starts(**options: Any) -> None:
    """Let a worker register, as it does when it starts."""
    WorkerProcess(WorkerOptions(**options))._register()


def heard(channel: str) -> list[Any]:
    return [row.data for row in Message.objects.filter(context__channel=channel)]


@pytest.mark.django_db
def test_a_worker_tells_of_the_queues_that_it_serves_if_somebody_listens() -> None:
    starts()
    assert not Message.objects.exists()
    flow.start("t.relay", inputs={"item": {"channels": ["/flow/components"]}}, run=False)
    starts(exclude=["partner"])

    assert heard("/flow/components/partner") == []
    [told] = heard("/flow/components/default")
    assert told == flow.components("default")
