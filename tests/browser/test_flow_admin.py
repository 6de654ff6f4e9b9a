"""An operator in a real browser: finds the stuck node, reads why, mends it; changes a graph."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from hipq_django import flow
from hipq_django.flow import testing
from tests.admin_pages import list_url, page_url
from tests.browsing import THEMES, contrast_of, hidden, look
from tests.factories import WorkerFactory
from tests.flow.conftest import in_status

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SHOP = {
    "nodes": {
        "parse": {"component": "flow.split"},
        "check": {
            "component": "flow.widget",
            "inputs": {"order": {}, "limit": {"default": 500}},
            "outputs": {"ok": {}, "review": {}},
        },
        "human": {
            "component": "flow.widget", "inputs": {"order": {}}, "outputs": {"yes": {}, "no": {}},
        },
        "charge": {
            "component": "flow.widget",
            "inputs": {"order": {}},
            "outputs": {"out": {}, "again": {}},
        },
        "ship": {"component": "flow.widget", "inputs": {"order": {}}, "outputs": {"done": {}}},
    },
    "edges": [
        "parse.out -> check.order", "check.ok -> charge.order", "check.review -> human.order",
        "human.yes -> charge.order", "charge.out -> ship.order", "charge.again -> check.order",
    ],
    "inputs": {"orders": "parse.in"},
    "outputs": {"shipped": "ship.done", "refused": "human.no"},
}  # fmt: skip


@pytest.fixture
def shop() -> flow.Node:
    """A graph in which one node has failed at a message and others have some unread."""
    WorkerFactory.create()
    shop = flow.start(SHOP, alias="shop", by="ann")
    for number in range(3):
        flow.start("t.double", alias=f"double_{number}", data={"number": [number]})
    shop.inputs["orders"].write("4711,4712,4713")
    testing.drain()
    human = shop.children["human"]
    human.pause()
    human.inputs["order"].write_many([{"id": 4711, "total": 70}, {"id": 4712, "total": 900}])
    shop.inputs["orders"].write({"id": 4714})
    testing.drain(errors=False)
    assert shop.children["parse"].status == "failed"
    return shop


def nested_failure() -> flow.Node:
    """Return a failed node below a failed one."""
    parent = in_status("failed")
    parent.aliases.add("import")
    child = in_status("failed")
    parent.adopt(child, "read the file")
    return child


def panel(page: Page) -> str:
    return page.get_by_label("Where the node stands").inner_text()


def message(page: Page) -> str:
    return page.locator(".messagelist").inner_text()


def press(page: Page, verb: str) -> None:
    """Press a button of a node's page, and say yes."""
    page.get_by_role("link", name=f"{verb} …", exact=True).click()
    expect(page.get_by_role("heading", name=f"{verb}: ")).to_be_visible()
    page.get_by_role("button", name=verb, exact=True).click()


def test_from_the_list_to_the_failed_node_to_its_message(page: Page, shop: flow.Node) -> None:
    page.goto(list_url(flow.Node))
    expect(page.get_by_text("Failed nodes, in all trees: 2.")).to_be_visible()
    look(page, "flow-1-list")
    page.get_by_role("link", name="parse", exact=True).click()

    assert "It failed, and runs by force only. 1 unread message is kept." in panel(page)
    look(page, "flow-2-failed", full=True)
    press(page, "Pause")
    expect(page.locator(".messagelist")).to_contain_text("Paused: node")
    page.get_by_role("link", name="in", exact=True).click()
    expect(page.get_by_role("heading", name="In-port in")).to_be_visible()
    page.locator(".hipq-rows tbody a").first.click()
    page.get_by_role("link", name="Edit the message …").click()
    save(page, "nonsense")
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    look(page, "flow-5-no-json", full=True)
    save(page, '"4714,4715"')
    expect(page.locator(".messagelist")).to_contain_text("Edited: Message")


def save(page: Page, text: str) -> None:
    page.get_by_label("Message:").fill(text)
    page.get_by_role("button", name="Save the message").click()


def test_a_message_is_written_and_others_are_moved(page: Page, shop: flow.Node) -> None:
    ship = shop.children["ship"]
    page.goto(page_url(ship))
    page.get_by_role("link", name="order", exact=True).click()

    page.get_by_role("link", name="Write a message …").click()
    expect(page.get_by_role("heading", name="Write a message: in-port order")).to_be_visible()
    look(page, "flow-10-write", full=True)
    page.get_by_label("Message:").fill('{"id": 1, "total": 2}')
    page.get_by_role("button", name="Write a message", exact=True).click()
    expect(page.locator(".messagelist")).to_contain_text("Wrote a message: in-port order")
    assert ship.inputs["order"].peek() == [{"id": 1, "total": 2}]

    page.get_by_role("link", name="Move all messages …").click()
    page.get_by_label("Node (id or alias):").fill("shop")
    page.get_by_label("Side:").select_option("out-port")
    page.get_by_label("Port:").fill("refused")
    page.get_by_role("button", name="Move all messages").click()
    expect(page.locator(".messagelist")).to_contain_text("Moved 1 message to out-port refused")
    assert shop.outputs["refused"].peek() == [{"id": 1, "total": 2}]


def test_a_graph_is_edited(page: Page, shop: flow.Node) -> None:
    page.goto(page_url(shop))
    page.get_by_role("link", name="Edit the graph").click()
    look(page, "flow-6-graph", full=True)
    wrong = {**SHOP, "edges": ["parse.out -> chek.order"]}
    page.get_by_label("Spec:").fill(json.dumps(wrong))
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("1 problem: nothing was changed")).to_be_visible()
    look(page, "flow-7-problem", full=True)

    nodes = {name: node for name, node in SHOP["nodes"].items() if name != "human"}  # type: ignore[attr-defined]  # a dict of dicts
    nodes["audit"] = {"component": "flow.each"}
    edges = ["parse.out -> check.order", "check.ok -> audit.in", "audit.out -> charge.order"]
    edges += ["charge.out -> ship.order"]
    spec = {**SHOP, "nodes": nodes, "edges": edges, "outputs": {"shipped": "ship.done"}}
    page.get_by_label("Spec:").fill(json.dumps(spec, indent=2))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("No problems.")).to_be_visible()
    look(page, "flow-8-preview", full=True)
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".messagelist")).to_contain_text("The graph is now as the spec says.")

    assert set(shop.children) == set(nodes)


def test_the_page_follows_what_happens_without_being_loaded_anew(
    page: Page, shop: flow.Node
) -> None:
    page.goto(page_url(shop))
    page.get_by_text("As a table").click()
    table = page.locator("#hipq-picture-table")
    expect(table).to_contain_text("order 2")
    page.evaluate("document.activeElement.blur()")

    shop.children["human"].inputs["order"].write({"id": 4799})

    expect(table).to_contain_text("order 3")
    expect(table.get_by_role("columnheader", name="Unread")).to_be_visible()


def test_pages_fit_and_can_be_read(page: Page, shop: flow.Node) -> None:
    human = shop.children["human"]
    port = human.inputs["order"].row
    row = port.messages.first()
    assert row is not None
    node = f"{list_url(flow.Node)}{human.pk}"
    pages = {
        "list": list_url(flow.Node),
        "list-filtered": f"{list_url(flow.Node)}?status=completed",
        "graph-node": page_url(shop),
        "failed-node": page_url(shop.children["parse"]),
        "port": f"{node}/port/{port.pk}/",
        "message": f"{node}/message/{row.pk}/",
        "edit": f"{node}/edit/{row.pk}/",
        "drop": f"{node}/drop/{row.pk}/",
        "terminate": f"{node}/terminate/",
        "force": page_url(nested_failure(), "run_by_force"),
        "graph": f"{list_url(flow.Node)}{shop.pk}/graph/",
    }

    assert hidden(page, pages, lists_fit=[1400]) == {}


def test_the_picture_can_be_read_in_both_themes(page: Page, shop: flow.Node) -> None:
    page.goto(page_url(shop))

    for scheme in THEMES:
        page.emulate_media(color_scheme=scheme)
        look(page, f"flow-node-1400-{scheme}")
        [box, *_] = fills(page, ".hipq-box")
        for kind in ("text.hipq-title", "text.hipq-small", "text.hipq-status"):
            for color in fills(page, kind):
                assert contrast_of(color, box) >= 4.5, (kind, color, box)
        for color in fills(page, "rect.hipq-tone"):
            assert contrast_of(color, box) >= 3, (color, box)


def fills(page: Page, kind: str) -> list[str]:
    """Return the colours of some parts of the picture; there are some."""
    parts = page.locator(f".hipq-picture {kind}")
    found: list[str] = parts.evaluate_all("es => es.map(e => getComputedStyle(e).fill)")
    assert found
    return found
