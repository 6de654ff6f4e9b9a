"""The page of a node: why it does not run, and what lies on its ports; secrets are masked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from hipq_django import flow
from hipq_django.domain.tokens import MASK
from hipq_django.flow import testing
from hipq_django.flow.models import LogEntry, Message, Node
from tests.admin_pages import html, list_url, log_in, page_url
from tests.copying import copy
from tests.declaring import Declare
from tests.factories import WorkerFactory
from tests.flow.conftest import in_status

pytestmark = pytest.mark.django_db

CARD = "4111-1111-1111-1111"


def panel(client: Client, node: Node) -> str:
    """Return the text of the panel that says why."""
    page = html(client, page_url(node))
    section = page.partition('aria-label="Where the node stands"')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", section).split())


def port_page(port: Any) -> str:
    return f"{list_url(Node)}{port.node.pk}/port/{port.row.pk}/"


def queue_paused(node: Node) -> None:
    node.run()
    testing.due(node)
    queue = Node.objects.get(pk=node.pk).queue
    queue.paused = True
    queue.save(using="default")


def half_fed(node: Node) -> None:
    node.inputs["a"].write(1)
    testing.drain()


def test_it_says_why_it_does_not_run(admin_client: Client) -> None:
    WorkerFactory.create()
    expected: list[tuple[Callable[[Node], Any], str]] = [
        (lambda node: None, "It waits for messages"),
        (lambda node: node.pause(), "It is paused; messages wait until it is resumed."),
        (
            lambda node: node.terminate(force=True),
            "It is terminated: it takes messages, but does not run.",
        ),
        (
            lambda node: node.lock(600),
            "Something outside has locked it; the lock ends no later than",
        ),
        (half_fed, "It looked at its messages and waits for more, on b."),
        (lambda node: node.run(), "Something came for it, and no worker has looked yet."),
        (queue_paused, "paused"),
    ]
    for prepare, says in expected:
        node = flow.start("t.recorder", run=False)
        prepare(node)

        assert says in panel(admin_client, node)


def test_a_failed_node_says_its_error_and_what_to_press(admin_client: Client) -> None:
    node = in_status("failed")
    node.inputs["a"].write(1)

    text = panel(admin_client, node)

    assert "It failed, and runs by force only. 1 unread message is kept." in text
    assert "press “Run by force”" in text
    assert "Error: CodeError: as asked" in text


def test_a_graph_names_the_children_that_failed(admin_client: Client) -> None:
    spec = {"nodes": {"one": {"component": "t.recorder"}, "two": {"component": "t.sum"}}}
    graph = flow.start(spec)
    one = graph.children["one"]
    one.state.set(perform=["raise"])
    one.run()
    testing.drain(errors=False)

    text = panel(admin_client, graph)

    assert "these have failed: one." in text
    assert "Run by force" not in text
    page = html(admin_client, page_url(graph))
    assert '<svg class="hipq-picture' in page
    assert f'href="{page_url(one)}"' in page


def test_ports_show_counts_defaults_connections_and_channels(admin_client: Client) -> None:
    one = flow.start("t.add", inputs={"x": {"channels": ["/orders"]}}, run=False, alias="one")
    two = flow.start("t.sum", run=False)
    one.outputs["out"].connect(two.inputs["number"])
    one.pause()
    one.inputs["x"].write_many([{"note": "<b>bold</b>"}, 2])

    page = html(admin_client, page_url(one))

    assert "{&quot;note&quot;: &quot;&lt;b&gt;bold&lt;/b&gt;&quot;}" in page
    assert f">node {two.pk}.number</a>" in page
    assert "/orders" in page
    assert '<td class="hipq-value" data-label="Default"><code>1</code></td>' in page


# Secrets, and sizes


@pytest.fixture
def cards() -> Node:
    """A node that failed at a message with a secret, connected with one that knows of none."""
    node = flow.start("t.cards", outputs={"out": {}}, run=False)
    after = flow.start("t.sum", run=False, alias="after")
    after.pause()
    node.outputs["out"].connect(after.inputs["number"])
    node.inputs["order"].write({"id": 1, "card": CARD})
    node.inputs["order"].write({"id": 2, "card": CARD, "bad": True})
    testing.drain(errors=False)
    assert node.status == "failed"
    return node


def test_secrets_are_masked_on_all_pages(admin_client: Client, cards: Node) -> None:
    after = flow.get("after")
    message = after.inputs["number"].row.messages.get()
    pages = [
        list_url(Node), page_url(cards), page_url(after), port_page(cards.inputs["order"]),
        port_page(after.inputs["number"]), f"{list_url(Node)}{after.pk}/message/{message.pk}/",
        f"{list_url(Node)}{after.pk}/drop/{message.pk}/",
    ]  # fmt: skip

    for url in pages:
        page = html(admin_client, url)
        assert CARD not in page, url
        assert MASK in page or url == list_url(Node)
    assert f"the card {MASK} of 2 was refused" in panel(admin_client, cards)


@pytest.mark.usefixtures("all_is_logged")
def test_what_a_stage_hands_on_is_masked_as_its_job_is(
    admin_client: Client, declare: Declare
) -> None:
    """No component knows the field, only the job type of the stage."""
    declare("pay", sensitive=["iban"])(lambda job: {"iban": "DE89 3704"})
    stage = flow.start("flow.jobs", args=["pay", "id"], run=False)
    stage.inputs["in"].write({"id": "a", "iban": "FR76 3000"})
    testing.drain()
    out = stage.outputs["out"]
    message = out.row.messages.get()

    for url in (port_page(out), f"{list_url(Node)}{stage.pk}/message/{message.pk}/"):
        page = html(admin_client, url)
        assert "DE89" not in page, url
        assert "FR76" not in page, url
        assert MASK in page, url
    logged = str(list(LogEntry.objects.values_list("entry", flat=True)))
    assert "DE89" not in logged
    assert "FR76" not in logged


def test_a_value_is_masked_by_the_name_of_its_port(client: Client) -> None:
    log_in(client, "view_node", "view_message", "change_message", "edit_node")
    node = flow.start("t.wild", run=False, inputs={"card": {"default": CARD}})
    node.pause()
    port = node.inputs["card"]
    port.write(CARD)
    entry = {"node": node.pk, "input": "card", "data": [CARD]}
    LogEntry.objects.create(node=node, entry={"read": [entry], "write": [], "note": "seen"})
    message = port.row.messages.get()
    url = f"{list_url(Node)}{node.pk}/message/{message.pk}/"

    for address in (page_url(node), port_page(port), url):
        page = html(client, address)
        assert CARD not in page, address
        assert MASK in page
    seen = html(client, url).partition('name="seen" value="')[2].partition('"')[0]
    client.post(url, {"value": f'"{MASK}"', "seen": seen})
    assert port.peek() == [CARD]


def test_an_error_is_not_told_where_it_may_quote_what_is_not_looked_at(
    admin_client: Client, cards: Node
) -> None:
    cards.inputs["order"].write_many([{"id": n} for n in range(300)])

    assert "Error: CodeError" in panel(admin_client, cards)
    assert "was refused" not in html(admin_client, page_url(cards))


def test_previews_are_cut_and_a_message_is_whole_for_who_may_view_it(client: Client) -> None:
    node = flow.start("t.sum", run=False)
    node.pause()
    node.inputs["number"].write({"text": "x" * 5_000 + "the end"})
    message = node.inputs["number"].row.messages.get()
    url = f"{list_url(Node)}{node.pk}/message/{message.pk}/"
    user = log_in(client, "view_node")

    for page in (page_url(node), port_page(node.inputs["number"])):
        text = html(client, page)
        assert "the end" not in text
        assert "characters more" in text
        assert url not in text
    assert client.get(url).status_code == 403
    user.delete()
    log_in(client, "view_node", "view_message")
    assert "the end" in html(client, url)


@pytest.mark.conformance
def test_a_port_with_many_messages_shows_the_oldest(admin_client: Client) -> None:
    node = flow.start("t.sum", run=False)
    node.inputs["number"].write(0)
    copy(Message.objects.get(), 10_000)

    page = html(admin_client, port_page(node.inputs["number"]))

    assert "Unread messages: 10,000+" in page
    assert page.count('data-label="Written"') == 50
    assert "10,000+" in html(admin_client, page_url(node))
    assert "10,000+" in html(admin_client, list_url(Node))


@pytest.mark.conformance
def test_the_number_of_queries_does_not_grow_with_ports_and_messages(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    node = flow.start("t.wild", run=False, inputs={f"p{n}": {} for n in range(130)})
    for port in list(node.inputs.values())[:40]:
        port.write(1)

    with django_assert_max_num_queries(25):
        page = html(admin_client, page_url(node))

    assert "It has more than 100 ports" in page
    assert page.count('data-label="Port"') == 100


def test_the_state_is_shown_without_what_flows_keep_there(admin_client: Client) -> None:
    spec = {"nodes": {"one": {"component": "t.sum"}}}
    graph = flow.start(spec)
    graph.state.set(seen=json.dumps("<script>"))

    page = html(admin_client, page_url(graph))

    assert "flow.spec" not in page
    assert "&lt;script&gt;" in page
    assert "<script>&quot;" not in page


def test_no_page_needs_inline_styles_or_scripts(admin_client: Client, cards: Node) -> None:
    graph = flow.start({"nodes": {"one": {"component": "t.sum"}}})
    urls = [page_url(graph), f"{list_url(Node)}{graph.pk}/graph/", page_url(graph, "terminate")]

    for url in (*urls, page_url(cards), port_page(cards.inputs["order"])):
        page = html(admin_client, url)
        assert not re.search(r"<[^>]+ (style|onclick)=", page), url
        assert "<style" not in page
        assert not re.search(r"<script(?![^>]*(src=|application/json))", page), url


@pytest.mark.parametrize("permissions", [["view_node"], ["view_node", "view_job"]])
def test_runs_are_shown_to_those_who_may_view_jobs(client: Client, permissions: list[str]) -> None:
    log_in(client, *permissions)
    node = flow.start("t.sum")
    testing.drain()

    has_runs = "<h2>Runs</h2>" in html(client, page_url(node))
    assert has_runs == ("view_job" in permissions)
