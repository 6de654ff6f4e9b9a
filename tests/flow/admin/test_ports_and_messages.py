"""Writing to ports, and mending what lies there: never behind the back of a run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from django.test import Client

from hipq_django import flow
from hipq_django.domain.tokens import MASK
from hipq_django.flow import testing
from hipq_django.flow.models import Message, Node, Wake
from tests.admin_pages import history, html, list_url, log_in, messages_of, submit

pytestmark = pytest.mark.django_db

CARD = "4111-1111-1111-1111"


def url_of(row: Any, verb: str = "") -> str:
    """Return the address of the page of a port or a message, or of a button there."""
    if isinstance(row, Message):
        return f"{list_url(Node)}{row.port.node_id}/{verb or 'message'}/{row.pk}/"
    return f"{list_url(Node)}{row.node.pk}/{verb or 'port'}/{row.row.pk}/"


def ask(client: Client, row: Any, verb: str, /, **sent: Any) -> Any:
    """Send a form of a page, whose answer asks whether it is right."""
    return client.post(url_of(row, verb), sent, follow=True)


def send(client: Client, row: Any, verb: str, /, **sent: Any) -> Any:
    """Send a form of a page that was opened just now, and say yes."""
    sent.setdefault("seen", seen_on(html(client, url_of(row, verb))))
    return ask(client, row, verb, **sent, confirmed="1")


def seen_on(page: str) -> str:
    """Return what a page says of the value that it shows."""
    return page.partition('name="seen" value="')[2].partition('"')[0]


@pytest.fixture
def node() -> Node:
    """A paused node with two messages."""
    node = flow.start("t.double", run=False)
    node.pause()
    node.inputs["number"].write_many([1, 2])
    return node


def first_of(node: Node) -> Message:
    message = Message.objects.select_related("port").filter(port__node=node.pk).first()
    assert message is not None
    return message


# What is done to a port


VERBS: dict[str, tuple[dict[str, str], set[str], str]] = {
    "write": ({"value": " 3 "}, {"write_port"}, "Wrote a message"),
    "default": ({"default": "[3]"}, {"edit_node"}, "Set the default"),
    "clear": ({}, {"edit_node"}, "Cleared the default"),
    "move": (
        {"node": "other", "direction": "in", "port": "number"},
        {"read_port", "write_port"},
        "Moved 1 message to in-port number of other",
    ),
}
"""What each verb is sent, the permissions that it needs, and what is said to be done."""

PERMISSIONS = {
    "view_node", "run_node", "edit_graph", "change_message", "read_port", "write_port", "edit_node",
}  # fmt: skip


@pytest.fixture
def port() -> Any:
    """A port with a message and a default."""
    flow.start("t.sum", run=False, alias="other")
    port = flow.start("t.add", run=False).inputs["y"]
    port.default = 7
    port.write(1)
    return port


def state_of(port: Any) -> tuple[Any, ...]:
    counts = (Wake.objects.count(), Message.objects.count())
    return (port.peek(9), port.default, history(port.node), *counts)


AFTER: dict[str, tuple[Any, Any]] = {
    "write": ([1, 3], 7), "default": ([1], [3]), "clear": ([1], flow.NOTHING), "move": ([], 7),
}  # fmt: skip


@pytest.mark.conformance
@pytest.mark.parametrize("verb", VERBS)
def test_a_change_is_made_once_it_is_confirmed(client: Client, port: Any, verb: str) -> None:
    values, needs, done = VERBS[verb]
    log_in(client, "view_node", *needs)
    before = state_of(port)

    assert f'href="{url_of(port, verb)}"' in html(client, url_of(port))
    page = ask(client, port, verb, **values).content.decode()
    assert f": in-port y of node {port.node.pk}?" in page
    client.get(url_of(port, verb), {**values, "confirmed": "1"})
    assert state_of(port) == before
    response = send(client, port, verb, **values)

    assert messages_of(response)[0].startswith(done)
    [said] = history(port.node)
    assert said.startswith(done)
    assert said.endswith(f": in-port y of node {port.node.pk}.")
    assert state_of(port)[:2] == AFTER[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_each_needs_its_own_permission(client: Client, port: Any, verb: str) -> None:
    values, needs, _done = VERBS[verb]
    log_in(client, *PERMISSIONS - {sorted(needs)[0]})
    before = state_of(port)

    assert url_of(port, verb) not in html(client, url_of(port))
    assert ask(client, port, verb, **values).status_code == 403
    assert ask(client, port, verb, **values, confirmed="1").status_code == 403
    assert state_of(port) == before


def test_a_port_that_is_not_there(admin_client: Client, node: Node) -> None:
    other = flow.start("t.sum", run=False).inputs["number"].row

    for part in (other.pk, "abc"):
        response = admin_client.get(f"{list_url(Node)}{node.pk}/port/{part}/", follow=True)
        assert messages_of(response) == ["The port is gone."]


# What is refused


def test_a_bad_value_is_refused_beside_its_field(client: Client, node: Node) -> None:
    log_in(client, "view_node", "write_port", "edit_node", "view_message", "change_message")
    refused = {
        "": "Write a value as JSON",
        "{": "This is not JSON",
        "NaN": "This is not JSON",
        "[" * 100_000: "This is nested too deeply",
        '"text"': "takes int, and was given str",
        r'"\ud800"': "This cannot be stored",
    }
    port = node.inputs["number"]
    places = [(port, "write", "value"), (port, "default", "default")]
    for row, verb, field in [*places, (first_of(node), "edit", "value")]:
        for value, says in refused.items():
            page = send(client, row, verb, **{field: value}).content.decode()

            assert says in page.partition("errorlist")[2].partition("</ul>")[0]
            assert value[:50].replace('"', "&quot;") in page  # what was written is not lost
    assert (port.peek(9), port.default, history(node)) == ([1, 2], flow.NOTHING, [])


def test_a_move_to_where_it_cannot_go_is_refused(client: Client, node: Node) -> None:
    log_in(client, "view_node", "read_port", "write_port")
    flow.start("t.wild", run=False, alias="texts", inputs={"text": {"type": "str"}})
    refused: list[tuple[dict[str, str], str]] = [
        ({"node": "nobody", "port": "number"}, "there is no node"),
        ({"port": "numbr"}, "has no in-port"),
        ({"port": "number"}, "This is the port itself."),
        ({"port": "*"}, "Name one port"),
        ({"port": ""}, "This field is required."),
        ({"port": "number", "direction": "up"}, "Select a valid choice"),
        ({"node": "texts", "port": "text"}, "takes str"),
    ]
    for target, says in refused:
        sent = {"node": str(node.pk), "direction": "in", **target}

        assert says in send(client, node.inputs["number"], "move", **sent).content.decode()
        assert node.inputs["number"].peek(9) == [1, 2]
        assert history(node) == []


@pytest.mark.conformance
@pytest.mark.parametrize("verb", ["edit", "drop"])
def test_what_somebody_else_changed_meanwhile_stays_until_that_was_read(
    admin_client: Client, node: Node, verb: str
) -> None:
    port = node.inputs["number"]
    row = first_of(node)
    seen = seen_on(html(admin_client, url_of(row, verb)))
    Message.objects.filter(pk=first_of(node).pk).update(data=12)

    refused = send(admin_client, row, verb, value="3", seen=seen).content.decode()

    assert "since you opened the page. It is 12 now. To replace that" in refused
    assert (port.peek(9), history(node)) == ([12, 2], [])
    send(admin_client, row, verb, value="3", seen=seen_on(refused))
    assert port.peek(9) == ([3, 2] if verb == "edit" else [2])


def test_a_move_makes_a_port_that_is_not_there(client: Client, node: Node) -> None:
    log_in(client, "view_node", "read_port", "write_port")
    target = flow.start("t.wild", run=False, alias="wild")

    send(client, node.inputs["number"], "move", node="wild", direction="in", port="new")

    assert target.inputs["new"].peek(9) == [1, 2]


# Messages


@pytest.mark.conformance
def test_a_message_is_edited_while_its_node_is_paused(client: Client, node: Node) -> None:
    log_in(client, "view_node", "view_message", "change_message")
    message = first_of(node)

    response = send(client, message, "edit", value="11")
    node.resume()
    testing.drain()

    assert response.redirect_chain == [(url_of(node.inputs["number"]), 302)]
    assert [node.outputs["out"].read(), node.outputs["out"].read()] == [22, 4]
    assert history(node) == [f"Edited: Message {message.pk} on in-port number."]


def test_a_message_that_its_port_takes_no_more_is_shown_and_edited(admin_client: Client) -> None:
    node = flow.start("t.sum", data={"number": ["a text"]})
    node.set_ports(inputs={"number": {"type": "int"}})
    testing.drain(errors=False)
    assert node.status == "failed"
    assert "a text" in html(admin_client, url_of(node.inputs["number"]))
    node.pause()

    send(admin_client, first_of(node), "edit", value="5")
    node.resume()
    node.run(force=True)
    testing.drain()

    assert list(node.outputs["out"]) == [5]


@pytest.mark.conformance
def test_a_message_is_dropped_after_a_confirmation(client: Client, node: Node) -> None:
    log_in(client, "view_node", "view_message", "delete_message")
    message = first_of(node)

    assert "This cannot be undone." in html(client, url_of(message, "drop"))
    assert ask(client, message, "drop").status_code == 200
    assert node.inputs["number"].size == 2
    send(client, message, "drop")

    assert node.inputs["number"].peek(9) == [2]
    assert history(node) == [f"Dropped: Message {message.pk} on in-port number."]


@pytest.mark.parametrize("verb", ["edit", "drop"])
def test_a_message_is_left_where_a_run_may_read_it(
    admin_client: Client, node: Node, verb: str
) -> None:
    asks = flow.start("t.asks", data={"question": [1, 2]})
    testing.drain()
    asks.pause()
    node.resume()

    for each, says in ((node, "pause it first"), (asks, "is under way and may have read")):
        message = first_of(each)
        assert says in html(admin_client, url_of(message))
        assert says in send(admin_client, message, verb, value="11").content.decode()
        assert Message.objects.get(pk=message.pk).data == message.data
        assert history(each) == []


def test_a_message_that_is_gone_leads_to_its_node(admin_client: Client, node: Node) -> None:
    message = first_of(node)
    node.inputs["number"].read()

    for verb in ("", "edit", "drop"):
        response = ask(admin_client, message, verb, value="11", seen="x", confirmed="1")

        assert messages_of(response) == [
            "The message is gone: it was read, moved or dropped meanwhile."
        ]


def test_a_message_of_an_out_port_is_read_by_the_parent(admin_client: Client) -> None:
    parent = flow.start("t.fib", run=False)
    child = parent.spawn("child", "t.double", run=False)
    child.outputs["out"].write(1)
    message = first_of(child)

    assert f"node {parent.pk} reads this port: pause it first" in html(
        admin_client, url_of(message)
    )
    parent.pause()
    send(admin_client, message, "edit", value="5")

    assert child.outputs["out"].peek() == [5]


@pytest.mark.parametrize(
    ("verb", "lacks"),
    [("edit", "change_message"), ("drop", "delete_message"), ("drop", "view_message")],
)
def test_messages_need_permissions(client: Client, node: Node, verb: str, lacks: str) -> None:
    others = {"view_message", "change_message", "delete_message", "write_port", "edit_node"}
    log_in(client, "view_node", *others - {lacks})
    url = url_of(first_of(node), verb)

    assert client.get(url).status_code == 403
    assert client.post(url, {"value": "11", "seen": "x", "confirmed": "1"}).status_code == 403
    assert node.inputs["number"].peek(9) == [1, 2]


# Large values


@pytest.mark.conformance
def test_a_large_value_is_put_on_a_port(admin_client: Client) -> None:
    quotes = json.dumps('"' * 450_000)  # percent-encoded it is larger than Django lets a form be
    node = flow.start("t.wild", run=False)
    node.pause()
    port = node.inputs["text"]

    for verb, label, sent in (
        ("write", "Write a message", {"value": quotes}),
        ("default", "Set the default", {"default": quotes}),
    ):
        url = url_of(port, verb)
        submit(admin_client, url, html(admin_client, url), label, **sent)
    url = url_of(first_of(node), "edit")
    submit(admin_client, url, html(admin_client, url), "Edit the message", value='"short"')

    assert (port.read(), port.default) == ("short", json.loads(quotes))


# Masks


@pytest.fixture
def order() -> Message:
    node = flow.start("t.cards", run=False)
    node.pause()
    node.inputs["order"].write({"id": 1, "card": CARD, "items": [{"card": "12345678"}, "x"]})
    return first_of(node)


def test_sensitive_values_are_masked_in_what_is_refused(
    admin_client: Client, order: Message
) -> None:
    seen = seen_on(html(admin_client, url_of(order, "edit")))
    Message.objects.filter(pk=order.pk).update(data={"card": CARD, "note": "theirs"})

    refused = send(admin_client, order, "edit", value="11", seen=seen).content.decode()

    assert "theirs" in refused
    assert CARD not in refused


@pytest.mark.parametrize("verb", ["write", "default", "edit"])
def test_what_is_masked_is_replaced_as_a_whole(
    admin_client: Client, order: Message, verb: str
) -> None:
    port = Node.objects.get().inputs["order"]
    row, field = order if verb == "edit" else port, "default" if verb == "default" else "value"

    page = send(admin_client, row, verb, **{field: f'{{"id": 2, "card": "{MASK} 1"}}'})

    assert "stands for a value that is not shown" in page.content.decode()
    assert port.peek(9) == [order.data]
    assert port.default is flow.NOTHING
    send(admin_client, row, verb, **{field: '{"id": 2, "card": "1"}'})
    assert {"id": 2, "card": "1"} in [*port.peek(9), port.default]


def test_a_short_masked_value_cannot_be_found_by_trying(
    admin_client: Client, order: Message
) -> None:
    Message.objects.filter(pk=order.pk).update(data={"card": "4711"})

    seen = seen_on(html(admin_client, url_of(order, "edit")))

    tried = (f'{{"card": "{number:04}"}}' for number in range(10_000))
    assert seen
    assert seen not in {hashlib.sha256(text.encode()).hexdigest() for text in tried}
