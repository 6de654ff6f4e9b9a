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


def all_of_them(*xs: Any) -> Any:
    return xs


def with_ports(**ports: Any) -> type:
    return type("Wrong", (flow.Component,), {"perform": perform, **ports})


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "port like a method": (
        with_ports(run=flow.In()), {},
        r"port 'run' is named like a method of components; name the attribute otherwise: "
        r"run_port = flow\.In\(name=\"run\"\)",
    ),
    "port twice": (with_ports(a=flow.In(name="x"), b=flow.In(name="x")), {}, "in-port 'x' twice"),
    "type of a port": (with_ports(a=flow.In(set)), {}, "type 'set' is none of JSON's"),
    "option of a port": (with_ports(a=flow.In(defualt=1)), {}, "'defualt', did you mean 'default'"),
    "default of a port": (with_ports(a=flow.In(int, default="1")), {}, "port 'a' takes int"),
    "no perform": (type("NoPerform", (flow.Component,), {}), {}, r"needs to be a flow\.Component"),
    "function of many": (all_of_them, {}, "parameter 'xs' cannot be given by its name"),
    "runaway": (None, {"runaway": "terminat"}, "runaway 'terminat': give 'slow' or 'terminate'"),
    "batch": (None, {"batch": 0}, "batch 0: give a whole number from 1 to 1,000,000"),
    "public": (None, {"public": "no"}, "public 'no': give True or False"),
    "unique": (None, {"unique": True}, "unique=.*is not for components"),
    "misspelt": (None, {"publik": 1}, r"unknown option 'publik', did you mean 'public'\?"),
}  # fmt: skip


@pytest.mark.parametrize(("code", "options", "why"), WRONG.values(), ids=WRONG)
def test_what_is_no_component(code: Any, options: dict[str, Any], why: str) -> None:
    refused = (hipq.InvalidJobTypeError, hipq.UnknownOptionError)
    with pytest.raises(refused, match=rf"component 't\.wrong'.*{why}"):
        flow.component("t.wrong", **options)(code)
    assert "t.wrong" not in [component["name"] for component in flow.components()]


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
