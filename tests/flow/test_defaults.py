"""Messages that become defaults: of each port only the newest counts, is read, and is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow import testing
from hipq_django.flow.models import Message
from hipq_django.flow.runs import defaults
from hipq_django.flow.runs.companion import Runs
from hipq_django.flow.web.showing import shown_ports
from tests.testapp.flows import Both, Script

pytestmark = pytest.mark.django_db

MANY = 3_000
MEMORY = {"a": {}, "b": {"mode": "memory"}}

NEWEST = re.compile(r"(p\.value|wanted\.id) AND as_default")
"""How the statement is told that reads the newest defaults."""


@pytest.fixture
def sweep() -> Callable[[], int]:
    """Return what a worker that has just started does at intervals."""
    runs = Runs()
    return lambda: runs.sweep(get_instance("default"))


def left(port: flow.Port) -> list[Any]:
    """Return the values that lie on a port as defaults."""
    rows = Message.objects.filter(port=port.row, as_default=True)
    return list(rows.order_by("pk").values_list("data", flat=True))


def pile_up(port: flow.Port, count: int = MANY) -> None:
    """Let so many defaults lie on a port, as single writes leave them."""
    row = port.row
    Message.objects.bulk_create(Message(port=row, data=i, as_default=True) for i in range(count))


class Asked:
    """Counts the messages that statements read."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, Any]] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Note a statement; be a wrapper of the connection's statements."""
        if "create_time" in sql and "hipq_flow_message" in sql and "INSERT" not in sql:
            self.statements.append((sql, params))
        return execute(sql, params, many, context)

    def rows(self) -> int:
        """Return how many rows they have, and forget them."""
        asked, self.statements = self.statements, []
        found = 0
        with connection.cursor() as cursor:
            for sql, params in asked:
                cursor.execute(sql, params)
                found += len(cursor.fetchall())
        self.statements = []
        return found


@pytest.fixture
def asked() -> Iterator[Asked]:
    noted = Asked()
    with connection.execute_wrapper(noted):
        yield noted


def test_a_run_reads_the_newest_default_only(script: Script, asked: Asked) -> None:
    node = flow.start("t.scripted", inputs={"item": {"mode": "memory"}}, run=False)
    pile_up(node.inputs["item"])
    seen: list[Any] = []

    def perform(run: Any) -> None:
        seen.append((run.item.read(), asked.rows()))

    script.perform = perform
    node.run()
    testing.drain()

    assert seen == [(MANY - 1, 1)]
    assert left(node.inputs["item"]) == []
    assert node.inputs["item"].default == MANY - 1


def test_who_looks_at_a_port_reads_the_newest_default_only(asked: Asked) -> None:
    node = flow.start(Both, inputs={"a": {"default": 0}, "b": {"mode": "memory"}}, run=False)
    other = flow.start(Both, run=False)
    pile_up(node.inputs["b"])

    assert node.inputs["b"].default == MANY - 1
    assert asked.rows() == 1
    shown = shown_ports(node, tells=True)["inputs"]
    assert asked.rows() == 1
    assert shown["a"] == {"size": 0, "default": 0}
    assert shown["b"] == {"size": 0, "default": MANY - 1}
    node.inputs["b"].move_to(other.inputs["b"])
    assert other.inputs["b"].default == MANY - 1


def test_what_is_written_together_leaves_its_last_default() -> None:
    node = flow.start(Both, inputs=MEMORY, run=False)
    node.pause()
    node.inputs["b"].write_many(range(1_000))
    node.inputs["a"].write_many([1, 2])

    assert left(node.inputs["b"]) == [999]
    assert node.inputs["a"].size == 2


def test_the_sweep_leaves_the_newest_default_of_each_port(
    monkeypatch: pytest.MonkeyPatch, sweep: Callable[[], int]
) -> None:
    monkeypatch.setattr(defaults, "PAGE_SIZE", 4)
    nodes = [flow.start(Both, inputs=MEMORY, run=False) for _ in range(5)]
    for count, node in enumerate(nodes):
        node.inputs["a"].write_many(["first", "second"])
        pile_up(node.inputs["b"], 3 * count)
    moved = [sweep() for _ in range(20)]

    assert sum(moved) == 3 + 6 + 9 + 12 - 4
    assert [left(node.inputs["b"]) for node in nodes] == [[], [2], [5], [8], [11]]
    assert [node.inputs["a"].size for node in nodes] == [2] * 5


def look(node: flow.Node) -> Any:
    return node.inputs["item"].default


def read(node: flow.Node) -> Any:
    return node.inputs["item"].read()


def show(node: flow.Node) -> Any:
    return shown_ports(node, tells=True)["inputs"]["item"]["default"]


def copy(node: flow.Node) -> Any:
    """Move what lies there to a port that has the former default."""
    other = flow.start("t.scripted", inputs={"item": {"default": "old"}}, run=False)
    node.inputs["item"].move_to(other.inputs["item"])
    return other.inputs["item"].default


@pytest.mark.parametrize("see", [look, read, show, copy])
def test_a_default_that_a_run_settles_while_somebody_looks_at_it_is_seen(
    see: Callable[[flow.Node], Any],
) -> None:
    """The end of the run moves it from a message into the row, between two looks at the two."""
    node = flow.start("t.scripted", inputs={"item": {"default": "old"}}, run=False)
    node.inputs["item"].default = "new"
    node.run()
    settled: list[bool] = []

    def settle(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if NEWEST.search(sql) and not settled:
            settled.append(True)
            testing.drain()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(settle):
        seen = see(node)

    assert (settled, seen) == ([True], "new")
