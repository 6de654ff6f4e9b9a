"""Graphs in the admin: their spec is edited as JSON, looked at, and applied as a whole or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings, strategies as st

from hipq_django import flow
from hipq_django.flow.admin import pictures
from hipq_django.flow.models import Connection, Node
from tests.admin_pages import history, html, list_url, log_in, messages_of, page_url

pytestmark = pytest.mark.django_db

SPEC: dict[str, Any] = {
    "nodes": {"one": {"component": "flow.each"}, "two": {"component": "flow.merge"}},
    "edges": ["one.out -> two.a"],
    "inputs": {"in": "one.in"},
}


@pytest.fixture
def graph() -> Node:
    return flow.start(SPEC, alias="shop")


def seen_of(client: Client, graph: Node) -> str:
    page = html(client, page_url(graph, "graph"))
    return page.partition('name="seen" value="')[2].partition('"')[0]


def send(client: Client, graph: Node, spec: Any, button: str = "_save", seen: str = "") -> Any:
    sent = {"spec": json.dumps(spec), "seen": seen or seen_of(client, graph), button: "1"}
    return client.post(page_url(graph, "graph"), sent, follow=True)


@pytest.mark.conformance
def test_a_new_spec_is_applied(client: Client, graph: Node) -> None:
    log_in(client, "view_node", "edit_graph")
    nodes = {**SPEC["nodes"], "three": {"component": "flow.flatten"}}

    response = send(client, graph, {**SPEC, "nodes": nodes, "edges": ["one.out -> three.in"]})

    assert messages_of(response) == ["The graph is now as the spec says."]
    assert set(graph.children) == {"one", "two", "three"}
    [link] = Connection.objects.filter(source__node__name="one")
    assert link.target.node.name == "three"
    assert history(graph) == ["Applied a new spec."]


def test_a_preview_shows_what_would_change_and_changes_nothing(client: Client, graph: Node) -> None:
    log_in(client, "view_node", "edit_graph")
    nodes = {"one": SPEC["nodes"]["one"], "three": {"component": "flow.flatten"}}
    spec = {**SPEC, "nodes": nodes, "edges": ["one.out -> three.in"]}

    page = send(client, graph, spec, "_preview").content.decode()

    assert "No problems." in page
    for says in (
        "one, flow.each, stays",
        "two, flow.merge, terminated",
        "three, flow.flatten, new",
    ):
        assert says in page
    picture = page.partition('<svg class="hipq-picture')[2].partition("</svg>")[0]
    assert picture.count("<path d=") == 2
    assert set(graph.children) == {"one", "two"}
    assert history(graph) == []


def test_a_preview_tells_warnings_and_that_not_all_is_drawn(
    client: Client, graph: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MAX_CHILDREN", 2)
    log_in(client, "view_node", "edit_graph")
    charge = {"charge": {"jobs": "echo"}}

    page = send(client, graph, {"nodes": {**SPEC["nodes"], **charge}}, "_preview").content.decode()

    for says in ("charge, jobs: echo, new", "There are more nodes than can be drawn."):
        assert says in page
    assert "1 problem: nothing was changed" in page  # the stage is not public
    nodes = {"one": SPEC["nodes"]["one"]}
    assert "1 warning" in send(client, graph, {"nodes": nodes}, "_preview").content.decode()


@pytest.mark.parametrize("permissions", [["read_port"], ["read_port", "write_port"]])
def test_channels_need_the_permission_to_use_them(
    client: Client, graph: Node, permissions: list[str]
) -> None:
    log_in(client, "view_node", "edit_graph", *permissions)
    out = {"outputs": {"out": {"channels": ["/orders"]}}}
    heard = {"component": "flow.each", "inputs": {"in": {"channels": ["/orders"]}}}
    spec = {"nodes": {"one": heard, "three": {"component": "flow.each", **out}}}

    page = send(client, graph, spec, "_save").content.decode()

    said = "nodes.three.outputs.out.channels", "you need the permission hipq_flow.write_port"
    assert [text in page for text in said] == [len(permissions) == 1] * 2
    assert "hipq_flow.read_port" not in page
    assert (graph.graph == spec) == (len(permissions) == 2)


def test_without_the_permission_nothing_happens(client: Client, graph: Node) -> None:
    log_in(client, "view_node", "edit_node", "run_node", "terminate_node")
    url = page_url(graph, "graph")

    assert client.get(url).status_code == 403
    assert client.post(url, {"spec": "{}", "_save": "1"}).status_code == 403
    assert "Edit the graph" not in html(client, page_url(graph))
    assert set(graph.children) == {"one", "two"}


def test_a_node_that_is_no_graph_has_no_such_page(admin_client: Client) -> None:
    node = flow.start("t.sum", run=False)

    response = admin_client.get(page_url(node, "graph"), follow=True)

    assert response.redirect_chain == [(list_url(Node), 302)]
    assert "Edit the graph" not in html(admin_client, page_url(node))


words = st.sampled_from(
    ["nodes", "edges", "inputs", "outputs", "component", "flow.each", "one", "one.out -> two.a",
     "init", "removed", "keep", "one.in", "", "*", "\0", "\ud800", "->"]
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)
specs = values | st.fixed_dictionaries(
    {"nodes": values}, optional=dict.fromkeys(("edges", "inputs", "outputs", "removed"), values)
)


@pytest.mark.conformance
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=specs)
def test_a_preview_of_anything_is_a_page(admin_client: Client, graph: Node, spec: Any) -> None:
    response = send(admin_client, graph, spec, "_preview", seen="x")

    assert response.status_code == 200
    assert set(graph.children) == {"one", "two"}
