"""The list of nodes: a tree, bounded whatever its size, with what has failed first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.admin.filters import STATUS_NAMES
from hipq_django.flow.admin.node_list import MAX_CHILDREN
from hipq_django.flow.models import Node, NodePort
from hipq_django.models import JobType, Queue
from tests.admin_pages import html, list_url, page_url
from tests.copying import analyze, copy
from tests.flow.conftest import in_status
from tests.testapp.flows import Recorder

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

ROOTS, CHILDREN = 21_000, 14_000
MAX_QUERIES = 16


def listed(client: Client, **query: Any) -> list[int]:
    """Return the ids of the nodes that a page of the list shows, in its order."""
    page = html(client, list_url(Node), **query)
    return [int(pk) for pk in re.findall(r'name="_selected_action" value="(\d+)"', page)]


def queries_of(client: Client, url: str, **query: Any) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        html(client, url, **query)
    return [found["sql"] for found in captured.captured_queries]


def test_children_stand_beneath_their_parents_failed_ones_first(admin_client: Client) -> None:
    one = flow.start("t.sum", run=False)
    two = flow.start(Recorder, run=False)
    b = one.spawn("b", "t.sum", run=False)
    a = one.spawn("a", "t.sum", run=False)
    c = one.spawn("c", Recorder, run=False)
    c.state.set(perform=["raise"])
    c.run()
    testing.drain(errors=False)

    assert listed(admin_client) == [two.pk, one.pk, c.pk, a.pk, b.pk]


def test_failed_roots_stand_first_on_all_pages(admin_client: Client) -> None:
    failed = [in_status("failed").pk for _ in range(3)]
    copy(Node.objects.get(pk=flow.start("t.sum", run=False).pk), 59)
    others = list(Node.objects.order_by("pk").values_list("pk", flat=True))[3:]

    assert listed(admin_client) == [*failed[::-1], *others[::-1][:47]]
    assert listed(admin_client, p=2) == others[::-1][47:]


def test_not_all_children_are_listed_and_a_link_leads_to_them(admin_client: Client) -> None:
    root = flow.start("t.sum", run=False)
    first = root.spawn("child_00", "t.sum", run=False).pk
    copy(Node.objects.get(pk=first), MAX_CHILDREN, name="'child_' || (n + 10)")
    children = list(Node.objects.filter(parent=root.pk).order_by("pk").values_list("pk", flat=True))

    assert listed(admin_client) == [root.pk, *children[:MAX_CHILDREN]]
    assert f"{list_url(Node)}?parent={root.pk}" in html(admin_client, list_url(Node))
    assert listed(admin_client, parent=root.pk) == children[::-1]


def test_the_failed_nodes_of_all_trees_are_told(admin_client: Client) -> None:
    root = flow.start("t.sum", run=False)
    assert "Failed nodes" not in html(admin_client, list_url(Node))
    child = root.spawn("child", Recorder, run=False)
    child.state.set(perform=["raise"])
    child.run()
    testing.drain(errors=False)

    assert "Failed nodes, in all trees: 1." in html(admin_client, list_url(Node))
    assert listed(admin_client, status="failed") == [child.pk]
    assert "CodeError" in html(admin_client, list_url(Node), status="failed")


def test_the_filter_finds_the_nodes_whose_status_it_is(admin_client: Client) -> None:
    for other in ("failed", "suspended", "completed", "terminated", "terminating", "queued"):
        in_status(other)  # the last two, for to drain others would run them, too
    paused = flow.start("t.double", run=False)
    paused.pause()
    paused.inputs["number"].write(1)
    later = flow.start("t.double", run=False)
    later.pause()
    later.run(wait=3_600)
    testing.due(later)
    statuses = {node.pk: node.status for node in Node.objects.all()}

    for status in set(STATUS_NAMES) - {"running"}:
        wanted = [pk for pk, its in statuses.items() if its == status]
        assert wanted
        assert sorted(listed(admin_client, status=status)) == sorted(wanted), status


def test_a_run_that_waits_for_its_answer_is_running(admin_client: Client) -> None:
    node = flow.start("t.asks", data={"question": [1]})
    flow.start("t.sum", run=False)
    testing.drain()

    assert node.status == "running"
    assert listed(admin_client, status="running") == [node.pk]
    assert "waits for its answer" in html(admin_client, list_url(Node))


def test_filters_by_component_queue_and_place(admin_client: Client) -> None:
    root = flow.start("t.sum", run=False)
    child = root.spawn("child", "t.double", run=False, job={"queue": "limited"})
    orphan = root.spawn("orphan", "t.sum", run=False)
    root.disown("orphan")

    double = JobType.objects.get(name="t.double")
    assert listed(admin_client, component=double.pk) == [child.pk]
    assert listed(admin_client, queue=Node.objects.get(pk=child.pk).queue_id) == [child.pk]
    assert listed(admin_client, place="roots") == [orphan.pk, root.pk]
    assert listed(admin_client, place="orphans") == [orphan.pk]
    assert listed(admin_client, place="children") == [child.pk]
    assert listed(admin_client, place="nonsense") == []
    assert listed(admin_client, status="nonsense") == []


def test_search_finds_an_alias_and_an_id(admin_client: Client) -> None:
    root = flow.start("t.sum", run=False, alias="the-sum")
    child = root.spawn("child", "t.sum", run=False)
    other = flow.start("t.sum", run=False)

    assert listed(admin_client, q="the-sum") == [root.pk, child.pk]
    assert listed(admin_client, q=str(child.pk)) == [child.pk]
    assert listed(admin_client, q=f" {other.pk} ") == [other.pk]
    for term in ("the-su", "9" * 30, "x" * 5_000, "1 2"):
        assert listed(admin_client, q=term) == []


def test_the_address_asks_for_nothing_else(admin_client: Client) -> None:
    for lookup in ("state_values__card__startswith", "parent__rest", "error"):
        assert admin_client.get(list_url(Node), {lookup: "4"}).status_code == 400, lookup
    assert admin_client.get(list_url(Node), {"parent": "1 or 1"}).status_code == 400


def test_the_number_of_queries_does_not_grow_with_the_nodes(admin_client: Client) -> None:
    counts = []
    for number in (1, 4):
        for _ in range(number):
            root = flow.start("t.sum", run=False, data={"number": [1, 2]})
            for name in "abc":
                root.spawn(name, Recorder, run=False, alias=f"{name}{root.pk}")
        counts.append(
            [
                len(queries_of(admin_client, list_url(Node))),
                len(queries_of(admin_client, list_url(Node), status="queued")),
            ]
        )

    assert counts[0] == counts[1]
    assert max(counts[0]) <= MAX_QUERIES


@pytest.fixture(scope="module")
def many_nodes(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Many nodes, of which one root has 7,000 children and 10,500 roots have failed."""
    with django_db_blocker.unblock():
        first = flow.start("t.sum", run=False)
        row = Node.objects.get(pk=first.pk)
        rests = "CASE n %% 4 WHEN 0 THEN 'completed' WHEN 1 THEN 'suspended' ELSE 'failed' END"
        copy(row, ROOTS, rest=rests)
        half, first_root = CHILDREN // 2, first.pk + 1
        parents = f"CASE WHEN n < {half} THEN id ELSE {first_root} + n - {half} END"
        copy(row, CHILDREN, parent_id=parents, name="'n' || n")
        analyze()
        yield
        NodePort.objects.all()._raw_delete("default")
        Node.objects.filter(parent__isnull=False)._raw_delete("default")
        for model in (Node, JobType, Queue):
            model._default_manager.all()._raw_delete("default")


def plan_of(statement: str) -> str:
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {statement}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


SCAN = re.compile(r"Seq Scan on hipq_flow_node |SCAN hipq_flow_node$", re.MULTILINE)


def test_a_page_of_many_nodes_asks_by_indexes(admin_client: Client, many_nodes: None) -> None:
    for page in (1, 150):
        statements = queries_of(admin_client, list_url(Node), p=page)

        assert len(statements) <= MAX_QUERIES
        for statement in statements:
            if 'FROM "hipq_jobtype"' in statement:
                continue  # a look for one node of each component, which may be the first of all
            if '"hipq_flow_node"' in statement:
                assert not SCAN.search(plan_of(statement)), statement
        assert all("LIMIT" in s for s in statements if "COUNT(" in s)


def test_counts_are_capped(admin_client: Client, many_nodes: None) -> None:
    page = html(admin_client, list_url(Node))

    assert "More than 10000 nodes match" in page
    assert "Failed nodes, in all trees: 10,000+." in page


def test_the_page_of_a_node_with_many_children_is_bounded(
    admin_client: Client, many_nodes: None
) -> None:
    root = Node.objects.order_by("pk").first()
    assert root is not None

    assert len(queries_of(admin_client, page_url(root))) <= 25
    assert html(admin_client, page_url(root)).count("hipq-completed") <= 25
