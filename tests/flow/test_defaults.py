"""Messages that become defaults: of each port only the newest counts, is read, and is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow.models import Message
from hipq_django.flow.runs import dispatching
from hipq_django.flow.runs.companion import Runs
from tests.testapp.flows import Both

pytestmark = pytest.mark.django_db

MANY = 3_000
MEMORY = {"a": {}, "b": {"mode": "memory"}}


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
    monkeypatch.setattr(dispatching, "DEFAULTS_SWEPT", 4)
    nodes = [flow.start(Both, inputs=MEMORY, run=False) for _ in range(5)]
    for count, node in enumerate(nodes):
        node.inputs["a"].write_many(["first", "second"])
        pile_up(node.inputs["b"], 3 * count)
    moved = [sweep() for _ in range(20)]

    assert sum(moved) == 3 + 6 + 9 + 12 - 4
    assert [left(node.inputs["b"]) for node in nodes] == [[], [2], [5], [8], [11]]
    assert [node.inputs["a"].size for node in nodes] == [2] * 5
