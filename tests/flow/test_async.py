"""The twins of all that may ask the database, in async code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.aliases import Aliases
from hipq_django.flow.state import State
from hipq_django.models import Job
from tests.declaring import Declare

pytestmark = pytest.mark.django_db


def in_loop(function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return async_to_sync(function)()


@pytest.fixture
def node() -> flow.Node:
    return flow.start("t.double", run=False)


OWNERS = (flow.Node, flow.Port, flow.Component, State, Aliases)


@pytest.mark.parametrize("owner", OWNERS)
def test_each_twin_is_that_of_the_verb_of_its_name(owner: type) -> None:
    twins = {
        name: member.__name__
        for name, member in vars(owner).items()
        if inspect.iscoroutinefunction(member) and hasattr(member, "__wrapped__")
    }

    assert twins
    assert list(twins) == list(twins.values())


def test_nodes_in_async_code() -> None:
    async def code() -> None:
        node = await flow.astart("flow.placeholder", alias="here")
        assert await flow.aget("here") == node
        assert await flow.afind("there") is None
        assert (await node.astatus(), (await node.ainfo())["component"]) == (
            "queued", "flow.placeholder",
        )  # fmt: skip
        assert [name async for name in node.aliases] == ["here"]
        child = await node.aspawn("one", "flow.wait", run=False)
        assert await node.achildren() == {"one": child}
        await child.aterminate(force=True)
        assert await child.adelete()

    in_loop(code)


def test_ports_in_async_code(node: flow.Node) -> None:
    async def code() -> None:
        port = await node.inputs.aget("number")  # type: ignore[attr-defined]  # of ports, not of all mappings
        await port.aset_channels(["/numbers"])
        assert await port.achannels() == ["/numbers"]
        await flow.apublish("/numbers", 9)
        assert (await port.asize(), await port.ahas_data()) == (1, True)
        assert [value async for value in port] == [9]
        await port.aset_default(7)
        assert (await port.adefault(), await port.aread()) == (7, 7)
        with pytest.raises(flow.UnknownPortError):
            await node.inputs.aget("nubmer")  # type: ignore[attr-defined]  # as above

    in_loop(code)


def test_the_kit_runs_nodes_in_async_code(node: flow.Node) -> None:
    async def code() -> None:
        port = await node.inputs.aget("number")  # type: ignore[attr-defined]  # as above
        await port.awrite(1)
        assert await testing.adue(node) == 1
        assert await testing.arun_inline(node, queue=False) == node
        await port.awrite(2)
        assert await testing.adrain() == 1

    in_loop(code)
    assert list(node.outputs["out"]) == [2, 4]


# In a run


@pytest.fixture
def component() -> Callable[[Callable[..., Any]], flow.Node]:
    """Return what starts a node whose `perform` is an async function."""

    def start(code: Callable[..., Any]) -> flow.Node:
        @flow.component("t.of_async_code")
        class OfCode(flow.Component):
            a, b, out = flow.In(), flow.In(default=10), flow.Out()

            async def perform(self) -> Any:
                await code(self)

        return flow.start(OfCode, run=False)

    return start


def test_a_run_reads_tuples_in_async_code(component: Any) -> None:
    async def code(self: flow.Component) -> None:
        async for a, b in self.aeach("a", "b"):
            await asyncio.sleep(0)
            await self.outputs["out"].awrite(a + b)

    node = component(code)
    node.inputs["a"].write_many([1, 2])
    testing.drain()

    assert list(node.outputs["out"]) == [11, 12]


def test_a_task_of_a_group_suspends_the_run(component: Any) -> None:
    async def suspend(self: flow.Component) -> None:
        await self.outputs["out"].awrite(1)
        self.suspend()

    async def code(self: flow.Component) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(suspend(self))
            group.create_task(asyncio.sleep(60))

    node = component(code)
    node.run()
    testing.drain()

    assert node.status == "suspended"
    assert node.outputs["out"].has_data


def test_what_a_run_does_else_in_async_code(component: Any, declare: Declare) -> None:
    done: list[Any] = []

    @declare("ask_later")
    def ask(job: Job) -> None:
        done.append(job.job_data)

    async def code(self: flow.Component) -> None:
        await self.aenqueue("ask_later", {"n": 1})
        self.state.set(found=[await self.astep("ask", lambda: 5), await self.aparent()])
        self.state.set(children=sorted(await self.achildren()))

    node = component(code)
    node.spawn("one", "flow.placeholder", run=False)
    node.run()
    testing.drain()

    assert done == [{"n": 1}]
    assert node.state.all() == {"found": [5, None], "children": ["one"]}
