"""Trees and ports with more rows than a statement may have parameters.

An SQLite as it is delivered takes 32,766 of them; here it takes as many as very old ones did.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from django.db import connection

from hipq_django import flow
from hipq_django.flow.models import Message, Node, NodePort

pytestmark = pytest.mark.django_db

PARAMETERS = 999
MANY = PARAMETERS + 1


@pytest.fixture(autouse=True)
def few_parameters(db: None) -> Iterator[None]:
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    before = connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, PARAMETERS)
    yield
    connection.connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, before)


@pytest.fixture
def tree() -> flow.Node:
    """Return a node with very many children, each of which has a port."""
    root = flow.start("flow.widget", run=False)
    row = Node.objects.get(pk=root.pk)
    nodes = Node.objects.bulk_create(
        Node(queue=row.queue, job_type=row.job_type, parent=row, name=f"child {number}")
        for number in range(MANY)
    )
    NodePort.objects.bulk_create(NodePort(node=node, direction="in", name="in") for node in nodes)
    return root


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_tree_is_terminated_and_deleted(tree: flow.Node, is_heard: bool) -> None:
    hears = {"a": {"channels": ["/flow"] * is_heard}}
    other = flow.start("flow.widget", run=False, inputs=hears)
    assert tree.is_idle()
    tree.terminate(recursive=True)
    assert not tree.is_terminated()
    tree.terminate(recursive=True, force=True)
    assert tree.is_terminated()
    assert tree.delete()

    assert [*Node.objects.all()] == [other]
    assert not NodePort.objects.exclude(node=other.pk).exists()


def test_messages_are_moved_and_connected() -> None:
    node = flow.start("flow.widget", inputs={"one": {}, "two": {}}, outputs={"out": {}}, run=False)
    node.outputs["out"].write_many(range(MANY))
    node.outputs["out"].connect(node.inputs["one"])
    assert node.inputs["one"].size == MANY
    node.inputs["one"].move_to(node.inputs["two"])

    assert node.inputs["two"].peek(MANY) == [*range(MANY)]
    assert Message.objects.count() == MANY
