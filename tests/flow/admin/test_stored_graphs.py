"""Graphs that are kept under a name: added, edited, started and deleted in the admin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Graph, Node
from tests.admin_pages import history, html, list_url, log_in, messages_of, page_url

pytestmark = pytest.mark.django_db

SPEC: dict[str, Any] = {
    "nodes": {"one": {"component": "flow.each"}},
    "inputs": {"in": "one.in"},
    "outputs": {"out": "one.out"},
}
ADD = reverse("admin:hipq_flow_graph_add")


@pytest.fixture
def stored() -> Graph:
    return Graph.objects.create(name="shop.parts", spec=SPEC)


def add(client: Client, name: str, spec: Any, button: str = "_save") -> Any:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    return client.post(ADD, {"name": name, "spec": text, button: "1"}, follow=True)


def edit(client: Client, row: Graph, spec: Any, version: int = 1, button: str = "_save") -> Any:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    sent = {"spec": text, "seen": str(version), button: "1"}
    return client.post(page_url(row), sent, follow=True)


def start(client: Client, row: Graph, **sent: str) -> Any:
    """Say yes on the page that asks, which shows the first version if nothing else is said."""
    sent = {"confirmed": "1", "seen": "1", **sent}
    return client.post(page_url(row, "start"), sent, follow=True)


@pytest.mark.conformance
def test_a_graph_is_added_and_started_by_its_name(client: Client) -> None:
    log_in(client, "edit_graph")
    response = add(client, "shop.parts", SPEC)

    row = Graph.objects.get()
    assert (row.name, row.spec, row.version) == ("shop.parts", SPEC, 1)
    assert messages_of(response) == ["shop.parts was saved."]
    assert history(row) == ["Made by hand."]
    node = flow.start("shop.parts", data={"in": [[1, 2]]})
    testing.drain()
    assert list(node.outputs["out"]) == [1, 2]


@pytest.mark.conformance
def test_a_graph_is_edited_and_nodes_stay_as_they_are(client: Client, stored: Graph) -> None:
    log_in(client, "edit_graph")
    node = flow.start("shop.parts")
    spec = {"nodes": {"two": {"component": "flow.flatten"}}}
    edit(client, stored, spec)

    stored.refresh_from_db()
    assert (stored.spec, stored.version) == (spec, 2)
    assert node.graph == SPEC
    assert history(stored) == ["Changed spec."]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("flow.each", "is declared in code"),
        ("t.in_code", "is declared in code"),
        ("shop.parts", "is there already"),
        ("", "This field is required."),
        ("a\tb", "printable"),
    ],
)
def test_a_name_that_cannot_be_is_refused(
    client: Client, stored: Graph, name: str, said: str
) -> None:
    flow.graph("t.in_code", SPEC)
    log_in(client, "edit_graph")
    page = add(client, name, SPEC).content.decode()

    assert said in page
    assert Graph.objects.count() == 1


def test_code_goes_first(client: Client) -> None:
    Graph.objects.create(name="t.in_code_too", spec=SPEC)
    flow.graph("t.in_code_too", {"nodes": {"mine": {"component": "t.double"}}})
    Graph.objects.create(name="t.double", spec=SPEC)

    assert list(flow.start("t.in_code_too").children) == ["mine"]
    assert flow.start("t.double").info["component"] == "t.double"
    log_in(client, "edit_graph", "start_node")
    row = Graph.objects.get(name="t.in_code_too")
    assert "The code declares something with this name" in html(client, page_url(row))
    assert "is declared in code" in messages_of(start(client, row))[0]


@pytest.mark.conformance
def test_a_graph_is_started_once_that_is_confirmed(client: Client, stored: Graph) -> None:
    log_in(client, "edit_graph", "start_node", "view_node")
    client.post(page_url(stored, "start"), {"alias": "parts"})
    page = html(client, page_url(stored, "start"))
    assert "Start: graph shop.parts?" in page
    assert "one, flow.each, new" in page
    assert not Node.objects.exists()

    response = start(client, stored, alias="parts")

    node = flow.get("parts")
    assert messages_of(response) == [f"Started: {node}."]
    assert response.redirect_chain == [(page_url(node), 302)]
    assert (node.graph, node.info["created_by"]) == (SPEC, "user:operator")
    assert history(stored) == [f"Started {node}."]
    assert "alias 'parts' is that of" in messages_of(start(client, stored, alias="parts"))[0]
    assert Node.objects.filter(parent=None).count() == 1


@pytest.mark.conformance
def test_a_graph_that_was_changed_since_it_was_shown_is_not_started(
    client: Client, stored: Graph
) -> None:
    log_in(client, "edit_graph", "start_node")
    page = html(client, page_url(stored, "start"))
    seen = page.partition('name="seen" value="')[2].partition('"')[0]
    edit(client, stored, {"nodes": {"theirs": {"component": "flow.each"}}})

    response = start(client, stored, seen=seen)

    assert messages_of(response) == ["graph 'shop.parts' was changed, or deleted, after version 1."]
    assert "theirs, flow.each, new" in response.content.decode()  # the page of the graph, as it is
    assert not Node.objects.exists()
    start(client, stored, seen="2")
    assert list(flow.get(Node.objects.get(parent=None).pk).children) == ["theirs"]


@pytest.mark.conformance
def test_a_graph_is_deleted(client: Client, stored: Graph) -> None:
    log_in(client, "edit_graph")
    client.post(page_url(stored, "delete"), {"post": "yes"})

    assert not Graph.objects.exists()
    with pytest.raises(flow.UnknownComponentError):
        flow.start("shop.parts")


def test_only_who_may_edit_graphs_edits_them(client: Client, stored: Graph) -> None:
    log_in(client, "view_graph", "start_node")
    page = html(client, page_url(stored))
    assert 'name="_save"' not in page
    assert "shop.parts" in html(client, list_url(Graph))
    assert edit(client, stored, {"nodes": {}}).status_code == 403
    assert add(client, "new", SPEC).status_code == 403
    assert client.get(ADD).status_code == 403
    assert client.post(page_url(stored, "delete"), {"post": "yes"}).status_code == 403
    assert start(client, stored).status_code == 403  # it was started, and its page is not shown
    assert Node.objects.get(parent=None).graph == SPEC


@pytest.mark.parametrize("permissions", [[], ["view_node", "start_node"], ["edit_graph"]])
def test_a_graph_is_started_by_who_may_see_graphs_and_start_nodes(
    client: Client, stored: Graph, permissions: list[str]
) -> None:
    log_in(client, *permissions)

    assert start(client, stored).status_code == 403
    assert client.get(page_url(stored, "start")).status_code == 403
    assert not Node.objects.exists()


@pytest.mark.parametrize("page", ["999", "x", "9" * 30])
def test_a_graph_that_is_not_there(client: Client, page: str) -> None:
    log_in(client, "edit_graph", "start_node")
    for more in ("change", "start"):
        url = reverse(f"admin:hipq_flow_graph_{more}", args=[page])
        response = client.post(url, {"spec": "{}"}, follow=True)
        assert messages_of(response) == [f"There is no graph {page}."]


def test_problems_show_no_secrets_of_the_spec(client: Client) -> None:
    card = "4111-1111-1111-1111"
    options: dict[str, Any] = {"type": "int", "init": [{"card": card}]}
    nodes = {
        "one": {"component": "flow.each", "args": [{"card": card}]},
        "two": {"component": "flow.widget", "inputs": {"order": options}},
    }
    row = Graph.objects.create(name="shop.old", spec={"nodes": nodes})
    log_in(client, "edit_graph", "start_node", "view_node")
    page = start(client, row).content.decode()
    assert "nodes.one: " in page
    assert "nodes.two.inputs.order.init" in page
    assert card not in page


def test_a_graph_is_not_started_with_what_is_no_more_public(client: Client) -> None:
    row = Graph.objects.create(name="old", spec={"nodes": {"one": {"component": "t.double"}}})
    log_in(client, "edit_graph", "start_node")

    assert "is not public" in messages_of(start(client, row))[0]
    assert not Node.objects.exists()
