"""Writing to ports, and mending what lies there: never behind the back of a run."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from django.test import Client

from hipq_django import flow
from hipq_django.domain.redaction import MASK
from hipq_django.flow import testing
from hipq_django.flow.admin.port_pages import PortPages
from hipq_django.flow.models import Message, Node, NodePort, Wake
from tests.admin_pages import history, html, list_url, log_in, messages_of, submit
from tests.rolling_back import rolled_back

pytestmark = pytest.mark.django_db

CARD = "4111-1111-1111-1111"


def port_url(port: Any) -> str:
    return f"{list_url(Node)}{port.node.pk}/port/{port.row.pk}/"


def ask(client: Client, port: Any, what: str, /, **sent: Any) -> Any:
    """Send a form of a port's page, whose answer asks whether it is right."""
    return client.post(port_url(port), {"do": what, **sent}, follow=True)


def send(client: Client, port: Any, what: str, /, **sent: Any) -> Any:
    """Send a form of a port's page, and say yes."""
    return ask(client, port, what, **sent, confirmed="1")


def seen_of(client: Client, url: str) -> str:
    """Return what a page says of the value that it shows."""
    return seen_on(html(client, url))


def seen_on(page: str) -> str:
    return page.partition('name="seen" value="')[2].partition('"')[0]


@pytest.fixture
def node() -> Node:
    """A paused node with two messages."""
    node = flow.start("t.double", run=False)
    node.pause()
    node.inputs["number"].write_many([1, 2])
    return node


# Write


@pytest.mark.conformance
def test_a_value_is_written(client: Client, node: Node) -> None:
    log_in(client, "view_node", "write_port")

    response = send(client, node.inputs["number"], "write", value=" 3 ")

    assert messages_of(response) == ["The message was written."]
    assert node.inputs["number"].peek(9) == [1, 2, 3]
    assert history(node) == ["Wrote a message to in:number."]
    assert "3" not in history(node)[0]


def test_a_bad_value_is_refused_beside_its_field(client: Client, node: Node) -> None:
    log_in(client, "view_node", "write_port")
    refused = {
        "": "Write a value as JSON",
        "{": "This is not JSON",
        "NaN": "This is not JSON",
        "[" * 100_000: "This is nested too deeply",
        "[" * 600 + "]" * 600: "nested deeper",
        '"text"': "takes int, and was given str",
        "null": "takes int, and was given NoneType",
        "true": "takes int, and was given bool",
        "9" * 5_000: "This is not JSON",
    }
    for value, says in refused.items():
        page = ask(client, node.inputs["number"], "write", value=value).content.decode()

        assert says in page.partition("errorlist")[2].partition("</ul>")[0]
        assert value[:50].replace('"', "&quot;") in page  # what was written is not lost
        assert node.inputs["number"].peek(9) == [1, 2]
        assert history(node) == []


@pytest.mark.conformance
def test_a_value_that_databases_refuse_is_refused(client: Client) -> None:
    log_in(client, "view_node", "write_port")
    node = flow.start("t.sum", run=False)

    for value in (r'"\u0000"', r'"\ud800"', '"' + "x" * 2_000_000 + '"'):
        response = send(client, node.inputs["number"], "write", value=value)
        assert "errorlist" in response.content.decode()
    assert node.inputs["number"].size == 0


@pytest.mark.conformance
@pytest.mark.parametrize("goes", ["port", "node"])
def test_a_port_that_goes_while_its_page_is_sent_is_told(
    client: Client, node: Node, monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    log_in(client, "view_node", "read_port", "write_port", "edit_node")
    url = port_url(node.inputs["number"])

    def shown(pages: PortPages, row: NodePort) -> Any:
        found = forms(pages, row)
        Message.objects.all().delete()
        NodePort.objects.filter(name="number").delete()
        if goes == "node":
            NodePort.objects.all().delete()
            Node.objects.all().delete()
        return found

    forms = PortPages._forms
    monkeypatch.setattr(PortPages, "_forms", shown)
    sent = {"value": "3", "default": "3", "node": node.pk, "direction": "out", "port": "out"}
    says = {"port": "has no in-port 'number'", "node": f"There is no node {node.pk}."}
    for what in ("", "write", "default", "clear", "move"):
        with rolled_back():
            response = client.post(url, {"do": what, **sent}, follow=True)
            assert says[goes] in " ".join(messages_of(response)), what


# Defaults


@pytest.mark.conformance
def test_a_default_is_set_and_cleared(client: Client) -> None:
    log_in(client, "view_node", "edit_node")
    port = flow.start("t.add", run=False).inputs["y"]

    send(client, port, "default", default="[7]", seen=seen_of(client, port_url(port)))
    assert port.default == [7]
    send(client, port, "clear", seen=seen_of(client, port_url(port)))

    assert port.default is flow.NOTHING
    assert history(port.node) == ["Set the default of in:y.", "Cleared the default of in:y."]


def test_a_default_of_a_connected_port_is_put_where_messages_go(client: Client, node: Node) -> None:
    log_in(client, "view_node", "edit_node")
    target = node.inputs["number"]
    port = flow.start("t.sum", run=False).outputs["out"]
    port.connect(target)
    seen = seen_of(client, port_url(port))

    asked = ask(client, port, "default", default="7", seen=seen).content.decode()
    assert port_url(target) in asked
    send(client, port, "default", default="7", seen=seen)
    assert (target.default, port.default) == (7, flow.NOTHING)


@pytest.mark.conformance
def test_a_default_that_somebody_changed_meanwhile_stays(client: Client) -> None:
    log_in(client, "view_node", "edit_node")
    port = flow.start("t.add", run=False).inputs["y"]
    seen = seen_of(client, port_url(port))
    port.default = 2

    refused = send(client, port, "default", default="3", seen=seen).content.decode()
    send(client, port, "clear", seen=seen)

    assert "Somebody else changed the default" in refused
    assert port.default == 2
    assert history(port.node) == []


@pytest.mark.conformance
def test_who_has_read_another_default_replaces_it(client: Client) -> None:
    log_in(client, "view_node", "edit_node")
    port = flow.start("t.add", run=False).inputs["y"]
    seen = seen_of(client, port_url(port))
    port.default = 2
    refused = send(client, port, "default", default="3", seen=seen).content.decode()

    send(client, port, "default", default="3", seen=seen_on(refused))

    assert "It is 2 now. To replace that" in refused
    assert port.default == 3


def test_a_default_of_another_type_is_refused(client: Client, node: Node) -> None:
    log_in(client, "view_node", "edit_node")
    port = node.inputs["number"]

    page = send(client, port, "default", default="{}", seen="nothing").content.decode()

    assert "takes int" in page
    assert port.default is flow.NOTHING


# Move


@pytest.mark.conformance
def test_all_messages_are_moved(client: Client, node: Node) -> None:
    log_in(client, "view_node", "read_port", "write_port")
    other = flow.start("t.sum", run=False, alias="other")

    response = send(
        client, node.inputs["number"], "move", node="other", direction="in", port="number"
    )

    assert messages_of(response) == ["Moved 2 messages."]
    assert other.inputs["number"].peek(9) == [1, 2]
    assert history(node) == [f"Moved 2 messages of in:number to node {other.pk}, in:number."]


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
        response = send(client, node.inputs["number"], "move", **sent)

        assert says in response.content.decode()
        assert node.inputs["number"].peek(9) == [1, 2]
        assert history(node) == []


def test_only_a_confirmed_move_makes_a_port(client: Client, node: Node) -> None:
    log_in(client, "view_node", "read_port", "write_port")
    target = flow.start("t.wild", run=False, alias="wild")
    sent = {"node": "wild", "direction": "in", "port": "mistyped"}
    before = list(target.inputs)

    page = ask(client, node.inputs["number"], "move", **sent).content.decode()
    assert list(target.inputs) == before
    assert f"in-port mistyped of wild (node {target.pk}), which is new" in page
    send(client, node.inputs["number"], "move", **sent)

    assert target.inputs["mistyped"].peek(9) == [1, 2]


# The confirmation


ANSWERS = {
    "write": ({"value": "3"}, "Write a message"),
    "default": ({"default": "3"}, "Set the default"),
    "clear": ({}, "Clear the default"),
    "move": ({"node": "other", "direction": "in", "port": "number"}, "Move all messages"),
}


def state_of(node: Node) -> tuple[Any, ...]:
    port = node.inputs["number"]
    return port.peek(9), port.default, history(node), Wake.objects.count(), Message.objects.count()


@pytest.mark.parametrize("what", ANSWERS)
def test_a_change_is_shown_before_it_is_made(admin_client: Client, node: Node, what: str) -> None:
    node.inputs["number"].default = 7
    flow.start("t.sum", run=False, alias="other")
    sent, label = ANSWERS[what]
    sent = {**sent, "seen": seen_of(admin_client, port_url(node.inputs["number"]))}
    before = state_of(node)

    for more in ({}, {"confirmed": ""}):
        page = ask(admin_client, node.inputs["number"], what, **sent, **more).content.decode()
        assert state_of(node) == before
    assert f"{label}: in-port number of node {node.pk}?" in page
    assert f">{label}</button>" in page
    confirmed = dict(re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', page))
    assert confirmed.items() >= {"do": what, "confirmed": "1", **sent}.items()
    admin_client.get(port_url(node.inputs["number"]), confirmed)
    assert state_of(node) == before
    admin_client.post(port_url(node.inputs["number"]), confirmed)

    assert state_of(node) != before
    assert len(history(node)) == 1


def test_a_message_is_shown_with_where_it_comes_to_lie_and_who_reads_it(
    admin_client: Client, node: Node
) -> None:
    source = flow.start("t.sum", run=False)
    source.outputs["out"].connect(node.inputs["number"])

    page = ask(admin_client, source.outputs["out"], "write", value="3").content.decode()
    shown = page.partition("hipq-facts")[2].partition("</table>")[0]

    assert "<code>3</code>" in shown
    assert port_url(node.inputs["number"]) in shown
    assert "which is read by <a href=" in shown
    assert ">paused</span>" in shown
    assert port_url(source.outputs["out"]) not in shown


def test_a_message_that_nobody_reads_is_said_to_be_so(admin_client: Client) -> None:
    port = flow.start("t.sum", run=False).outputs["out"]
    port.channels = ["/totals"]

    page = ask(admin_client, port, "write", value="3").content.decode()

    assert "which no node reads" in page
    assert "/totals" in page


def test_sensitive_values_are_masked_in_what_is_shown(admin_client: Client) -> None:
    port = flow.start("t.cards", run=False).inputs["order"]

    page = ask(admin_client, port, "write", value=f'{{"card": "{CARD}"}}').content.decode()

    facts = page.partition("hipq-facts")[2].partition("</table>")[0]
    assert MASK in facts
    assert CARD not in facts


# Permissions


@pytest.mark.parametrize(
    ("what", "needs"),
    [
        ("write", ["write_port"]), ("default", ["edit_node"]), ("clear", ["edit_node"]),
        ("move", ["read_port", "write_port"]), ("nonsense", []),
    ],
)  # fmt: skip
def test_each_needs_its_own_permission(
    client: Client, node: Node, what: str, needs: list[str]
) -> None:
    others = {"run_node", "edit_graph", "change_message", "read_port", "write_port", "edit_node"}
    log_in(client, "view_node", *others - set(needs[:1]))
    port = node.inputs["number"]
    values = {"value": "3", "default": "3", "node": node.pk, "direction": "out", "port": "out"}

    assert ask(client, port, what, **values).status_code == 403
    assert send(client, port, what, **values).status_code == 403

    assert (port.peek(9), port.default) == ([1, 2], flow.NOTHING)
    assert history(node) == []


def test_a_port_that_is_not_there(admin_client: Client, node: Node) -> None:
    other = flow.start("t.sum", run=False)
    foreign = f"{list_url(Node)}{node.pk}/port/{other.inputs['number'].row.pk}/"

    for url in (foreign, f"{list_url(Node)}{node.pk}/port/abc/"):
        assert admin_client.get(url, follow=True).redirect_chain == [(list_url(Node), 302)]


# Messages


def message_url(message: Message, page: str = "message") -> str:
    return f"{list_url(Node)}{message.port.node_id}/{page}/{message.pk}/"


def first_of(node: Node) -> Message:
    message = Message.objects.select_related("port").filter(port__node=node.pk).first()
    assert message is not None
    return message


@pytest.mark.conformance
def test_a_message_is_edited_while_its_node_is_paused(client: Client, node: Node) -> None:
    log_in(client, "view_node", "view_message", "change_message")
    message = first_of(node)
    url = message_url(message)

    client.post(url, {"value": "11", "seen": seen_of(client, url)})
    node.resume()
    testing.drain()

    assert [node.outputs["out"].read(), node.outputs["out"].read()] == [22, 4]
    assert history(node) == [f"Edited message {message.pk} on in:number."]


def test_a_message_that_its_port_takes_no_more_is_shown_and_edited(admin_client: Client) -> None:
    node = flow.start("t.sum", data={"number": ["a text"]})
    port = node.inputs["number"]
    node.set_ports(inputs={"number": {"type": "int"}})
    testing.drain(errors=False)
    assert node.status == "failed"
    assert "a text" in html(admin_client, port_url(port))
    node.pause()
    url = message_url(first_of(node))
    refused = admin_client.post(url, {"value": '"b"', "seen": seen_of(admin_client, url)})
    assert "takes int" in refused.content.decode()
    admin_client.post(url, {"value": "5", "seen": seen_of(admin_client, url)})
    node.resume()
    node.run(force=True)
    testing.drain()

    assert list(node.outputs["out"]) == [5]


@pytest.mark.conformance
def test_a_message_is_dropped_after_a_confirmation(client: Client, node: Node) -> None:
    log_in(client, "view_node", "view_message", "delete_message")
    message = first_of(node)
    url = message_url(message, "drop")

    assert "This cannot be undone." in html(client, url)
    assert node.inputs["number"].size == 2
    client.post(url, {"seen": seen_of(client, url)})

    assert node.inputs["number"].peek(9) == [2]
    assert history(node) == [f"Dropped message {message.pk} of in:number."]


@pytest.mark.parametrize("page", ["message", "drop"])
def test_a_message_is_left_where_a_run_may_read_it(
    admin_client: Client, node: Node, page: str
) -> None:
    url = message_url(first_of(node), page)
    seen = seen_of(admin_client, url)
    node.resume()

    text = html(admin_client, url)
    response = admin_client.post(url, {"value": "11", "seen": seen}, follow=True)

    assert "pause it first" in text
    assert "pause it first" in response.content.decode()
    assert node.inputs["number"].peek(9) == [1, 2]
    assert history(node) == []


def test_a_message_is_left_while_a_run_is_under_way(admin_client: Client) -> None:
    node = flow.start("t.asks", data={"question": [1, 2]})
    testing.drain()
    node.pause()
    message = first_of(node)
    url = message_url(message)

    response = admin_client.post(url, {"value": "11", "seen": seen_of(admin_client, url)})

    assert "is under way and may have read the message" in response.content.decode()
    assert Message.objects.get(pk=message.pk).data == message.data


@pytest.mark.conformance
@pytest.mark.parametrize("page", ["message", "drop"])
def test_a_message_that_somebody_else_changed_is_left(
    admin_client: Client, node: Node, page: str
) -> None:
    message = first_of(node)
    url = message_url(message, page)
    seen = seen_of(admin_client, url)
    Message.objects.filter(pk=message.pk).update(data=12)

    response = admin_client.post(url, {"value": "11", "seen": seen}, follow=True)

    assert "Somebody else changed the message" in response.content.decode()
    assert node.inputs["number"].peek(9) == [12, 2]


@pytest.mark.conformance
def test_who_has_read_another_message_replaces_it(admin_client: Client, node: Node) -> None:
    message = first_of(node)
    url = message_url(message)
    seen = seen_of(admin_client, url)
    Message.objects.filter(pk=message.pk).update(data=12)
    refused = admin_client.post(url, {"value": "11", "seen": seen}).content.decode()

    admin_client.post(url, {"value": "11", "seen": seen_on(refused)})

    assert "It is 12 now. To replace that" in refused
    assert node.inputs["number"].peek(9) == [11, 2]


def test_what_somebody_else_wrote_is_masked(admin_client: Client, order: Message) -> None:
    url = message_url(order)
    seen = seen_of(admin_client, url)
    Message.objects.filter(pk=order.pk).update(data={"card": CARD, "note": "theirs"})

    refused = admin_client.post(url, {"value": "11", "seen": seen}).content.decode()

    assert "theirs" in refused
    assert CARD not in refused


def test_a_message_that_is_gone_leads_to_its_node(admin_client: Client, node: Node) -> None:
    message = first_of(node)
    url = message_url(message)
    node.inputs["number"].read()

    response = admin_client.post(url, {"value": "11", "seen": "x"}, follow=True)

    assert messages_of(response) == [
        "The message is gone: it was read, moved or dropped meanwhile."
    ]


def test_a_message_of_an_out_port_is_read_by_the_parent(admin_client: Client) -> None:
    parent = flow.start("t.fib", run=False)
    child = parent.spawn("child", "t.double", run=False)
    child.outputs["out"].write(1)
    url = message_url(first_of(child))

    assert f"node {parent.pk} reads this port: pause it first" in html(admin_client, url)
    parent.pause()
    admin_client.post(url, {"value": "5", "seen": seen_of(admin_client, url)})

    assert child.outputs["out"].peek() == [5]


@pytest.mark.parametrize("value", ["{", '"text"'])
def test_an_edited_message_that_does_not_fit_is_refused(
    admin_client: Client, node: Node, value: str
) -> None:
    url = message_url(first_of(node))

    page = admin_client.post(url, {"value": value, "seen": seen_of(admin_client, url)})

    assert "errorlist" in page.content.decode()
    assert node.inputs["number"].peek(9) == [1, 2]


@pytest.mark.parametrize(
    ("page", "permission"), [("message", "change_message"), ("drop", "delete_message")]
)
def test_messages_need_permissions(client: Client, node: Node, page: str, permission: str) -> None:
    others = {"view_message", "change_message", "delete_message", "write_port", "edit_node"}
    log_in(client, "view_node", *others - {permission})
    url = message_url(first_of(node), page)
    sent = {"value": "11", "seen": seen_of(client, message_url(first_of(node)))}

    assert client.post(url, sent).status_code == 403
    assert node.inputs["number"].peek(9) == [1, 2]


def test_only_who_may_see_a_message_drops_it(client: Client, node: Node) -> None:
    log_in(client, "view_node", "delete_message")
    url = message_url(first_of(node), "drop")

    assert client.get(url).status_code == 403
    assert client.post(url, {"seen": "x"}).status_code == 403
    assert node.inputs["number"].peek(9) == [1, 2]


# Large messages


QUOTES = json.dumps('"' * 450_000)
"""May be a message; percent-encoded it is larger than Django lets a form be."""


@pytest.mark.parametrize(
    ("do", "name", "form", "title"),
    [
        ("write", "value", "Write a message", "Write a message"),
        ("default", "default", "Default", "Set the default"),
    ],
)
def test_a_large_value_is_put_on_a_port(
    admin_client: Client, do: str, name: str, form: str, title: str
) -> None:
    port = flow.start("t.wild", run=False).inputs["text"]
    url = port_url(port)

    page = html(admin_client, url)
    asked = submit(admin_client, url, page, form, do=do, **{name: QUOTES}).content.decode()
    submit(admin_client, url, asked, title)

    assert port.read() == json.loads(QUOTES)


@pytest.mark.conformance
def test_a_large_message_is_edited(admin_client: Client) -> None:
    node = flow.start("t.wild", run=False)
    node.pause()
    node.inputs["text"].write("short")
    url = message_url(first_of(node))

    submit(admin_client, url, html(admin_client, url), "Edit the message", value=QUOTES)

    assert node.inputs["text"].read() == json.loads(QUOTES)


# Masks


@pytest.fixture
def order() -> Message:
    node = flow.start("t.cards", run=False)
    node.pause()
    node.inputs["order"].write({"id": 1, "card": CARD, "items": [{"card": "12345678"}, "x"]})
    return first_of(node)


@pytest.mark.parametrize("card", [MASK, f"{MASK} 1"])
def test_what_is_masked_is_replaced_as_a_whole(
    admin_client: Client, order: Message, card: str
) -> None:
    url = message_url(order)
    seen = seen_of(admin_client, url)
    page = admin_client.post(url, {"value": f'{{"id": 2, "card": "{card}"}}', "seen": seen})

    assert "stands for a value that is not shown" in page.content.decode()
    assert Message.objects.get(pk=order.pk).data == order.data
    admin_client.post(url, {"value": '{"id": 2, "card": "1"}', "seen": seen})
    assert Message.objects.get(pk=order.pk).data == {"id": 2, "card": "1"}


@pytest.mark.parametrize("what", ["write", "default"])
def test_a_mask_on_a_port_is_refused(admin_client: Client, what: str) -> None:
    port = flow.start("t.cards", run=False).inputs["order"]
    field = "value" if what == "write" else what

    page = ask(admin_client, port, what, **{field: f'{{"card": "{MASK}"}}'}).content.decode()

    assert "stands for a value that is not shown" in page.partition("errorlist")[2]
    assert not port.has_data


@pytest.mark.parametrize("page", ["message", "drop"])
def test_a_short_masked_value_cannot_be_found_by_trying(
    admin_client: Client, order: Message, page: str
) -> None:
    Message.objects.filter(pk=order.pk).update(data={"card": "4711"})

    seen = seen_of(admin_client, message_url(order, page))

    tried = (f'{{"card": "{number:04}"}}' for number in range(10_000))
    assert seen
    assert seen not in {hashlib.sha256(text.encode()).hexdigest() for text in tried}
