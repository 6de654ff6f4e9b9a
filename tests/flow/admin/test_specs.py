"""What holds for both pages on which a spec is edited: of a graph that runs, and of a kept one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from hipq_django import flow
from hipq_django.domain.tokens import MASK
from hipq_django.flow.models import Graph, Node
from tests.admin_pages import history, html, log_in, page_url, submit

pytestmark = pytest.mark.django_db

CARD = "4111-1111-1111-1111"
ONE, TWO = {"component": "flow.each"}, {"component": "flow.merge"}
SPEC: dict[str, Any] = {"nodes": {"one": ONE}}


class Edited:
    """A graph whose spec is edited in the admin."""

    def __init__(self, kind: str, spec: Any = SPEC) -> None:
        self.row: Any
        if kind == "running":
            self.row, page, self.button = flow.start(spec), "graph", "_save"
        else:
            self.row, page = Graph.objects.create(name="shop.parts", spec=spec), "change"
            self.button = "_save"
        self.url = page_url(self.row, page)

    @property
    def spec(self) -> Any:
        """The spec that it has."""
        if isinstance(self.row, Node):
            return self.row.graph
        return Graph.objects.get(pk=self.row.pk).spec

    def send(self, client: Client, spec: Any, *, seen: str = "", button: str = "") -> str:
        """Send a spec from a page that was opened just now, or before."""
        text = spec if isinstance(spec, str) else json.dumps(spec)
        sent = {"spec": text, "seen": seen or self.seen(client), button or self.button: "1"}
        page: str = client.post(self.url, sent, follow=True).content.decode()
        return page

    def seen(self, client: Client) -> str:
        """Return what its page says of the spec that it shows."""
        return seen_on(html(client, self.url))


def seen_on(page: str) -> str:
    return page.partition('name="seen" value="')[2].partition('"')[0]


@pytest.fixture(params=["running", "kept"])
def kind(request: pytest.FixtureRequest, client: Client) -> str:
    log_in(client, "view_node", "edit_graph")
    found: str = request.param
    return found


def test_a_large_spec_is_taken(client: Client, kind: str) -> None:
    edited = Edited(kind)
    spec = {"nodes": {"one": ONE, "two": {**ONE, "inputs": {"in": {"default": '"' * 450_000}}}}}
    page = html(client, edited.url)

    submit(client, edited.url, page, "Graph", spec=json.dumps(spec), **{edited.button: "1"})

    assert edited.spec == spec


@pytest.mark.parametrize("button", ["", "_preview"])
def test_all_problems_are_told_and_nothing_is_changed(
    client: Client, kind: str, button: str
) -> None:
    edited = Edited(kind)
    wrong = {"nodes": {"a": {"component": "flow.eech"}, "b": {"component": "t.double"}}}
    wrong["edges"] = ["b.out -> <b>.in"]  # type: ignore[assignment]  # as text

    page = edited.send(client, wrong, button=button)

    assert "3 problems" in page
    assert "nodes.a.component" in page
    assert "&#x27;t.double&#x27; is not public." in page
    assert "&lt;b&gt;" in page
    assert "<b>.in" not in page
    assert "flow.eech" in page.partition("<textarea")[2].partition("</textarea>")[0]
    assert (edited.spec, history(edited.row)) == (SPEC, [])


@pytest.mark.conformance
def test_what_is_no_json_is_refused_beside_the_field(client: Client, kind: str) -> None:
    edited = Edited(kind)
    surrogates = [r'{"nodes": {"\ud800": {}}}', r'{"edges": ["a.\ud800 -> b.in"]}']

    for spec in ("", "{", "[" * 100_000, "NaN", *surrogates):
        page = edited.send(client, spec)

        assert "errorlist" in page, spec[:20]
        assert "hipq-picture" not in page
    assert (edited.spec, history(edited.row)) == (SPEC, [])


@pytest.mark.conformance
def test_what_somebody_else_changed_is_replaced_once_that_was_said(
    client: Client, kind: str
) -> None:
    edited = Edited(kind)
    seen, theirs = edited.seen(client), {"nodes": {"one": ONE, "theirs": ONE}}
    edited.send(client, theirs)

    refused = edited.send(client, SPEC, seen=seen)

    assert "send the form again" in refused
    assert edited.spec == theirs
    edited.send(client, SPEC, seen=seen_on(refused))
    assert edited.spec == SPEC


def test_a_masked_spec_is_replaced_as_a_whole(client: Client, kind: str) -> None:
    order = {"default": {"id": 1, "card": CARD}}
    nodes = {"one": {"component": "flow.widget", "inputs": {"order": order}}}
    edited = Edited(kind, {"nodes": nodes})
    masked = json.loads(json.dumps({"nodes": {**nodes, "two": TWO}}).replace(CARD, MASK))

    assert CARD not in html(client, edited.url)
    assert "stands for a value that is not shown" in edited.send(client, masked)
    assert edited.spec == {"nodes": nodes}
    edited.send(client, {"nodes": {**nodes, "two": TWO}})
    assert edited.spec == {"nodes": {**nodes, "two": TWO}}
