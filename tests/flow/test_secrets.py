"""Sensitive values that a run has seen are in no error, no log entry and no log line."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

import hipq_django as hipq
from hipq_django import flow
from hipq_django.domain.tokens import MASK
from hipq_django.flow import testing
from hipq_django.flow.models import LogEntry
from hipq_django.models import Attempt, Job
from tests.testapp.flows import CodeError, Script, Scripted

pytestmark = pytest.mark.django_db

CARD = "4111-1111-1111-1111"
"""A value of the field `card`, which is sensitive in the component t.cards."""


def all_that_is_stored(node: flow.Node) -> str:
    """Return what people may read of the end of a node's runs."""
    rows = [
        *flow.Node.objects.filter(pk=node.pk).values_list("error", flat=True),
        *Job.objects.values_list("error", flat=True),
        *Attempt.objects.values_list("error", "traceback"),
        *LogEntry.objects.values_list("entry", flat=True),
    ]
    return json.dumps(rows, ensure_ascii=False, default=str)


def test_a_message_that_was_read(caplog: pytest.LogCaptureFixture, admin_client: Client) -> None:
    node = flow.start("t.cards", data={"order": [{"id": 7, "card": CARD, "bad": True}]})
    testing.drain(errors=False)

    assert node.status == "failed"
    stored = all_that_is_stored(node)
    assert CARD not in stored
    assert f"the card {MASK} of 7 was refused" in stored
    assert "job_failed" in caplog.text
    assert CARD not in caplog.text
    page = admin_client.get(reverse("admin:hipq_job_change", args=[Job.objects.get().pk]))
    assert CARD not in page.content.decode()


def read(run: Any) -> str:
    return str(run.item.read()["card"])


def written(run: Any) -> str:
    run.out.write({"card": CARD})
    run.item.read()
    return CARD


def own_state(run: Any) -> str:
    return str(run.state["card"])


def carried(run: Any) -> str:
    return str(run.item.packet().context["card"])


def handed_on(run: Any) -> str:
    with flow.context(card="3400-0000-0000-0009"):
        run.out.write(1)
    return "3400-0000-0000-0009"


def set_as_default(run: Any) -> str:
    run.out.default = {"card": "3600-0000-0000-0008"}
    return "3600-0000-0000-0008"


def of_a_default(run: Any) -> str:
    return str(run.inputs["usual"].packet().context["card"])


def state_of_the_parent(run: Any) -> str:
    return str(run.parent.state["card"])


def argument_of_the_parent(run: Any) -> str:
    return str(run.parent.args[0]["card"])


def published(run: Any) -> str:
    run.publish({"card": CARD}, "/cards")
    return CARD


def spawned_with(run: Any) -> str:
    run.spawn("child", Scripted, args=[{"card": CARD}])
    return CARD


def enqueued(run: Any) -> str:
    run.enqueue("echo", {"card": CARD})
    return CARD


SEEN = [
    read, written, own_state, carried, handed_on, set_as_default, published, spawned_with,
    enqueued, of_a_default, state_of_the_parent, argument_of_the_parent,
]  # fmt: skip


@pytest.fixture
def surrounded() -> flow.Node:
    """Return a node around which there are cards, each with a number of its own."""
    parent = flow.start("t.recorder", args=[{"card": "6011-0000-0000-0004"}], run=False)
    parent.state.set(card="5500-0000-0000-0004")
    node = parent.spawn("child", Scripted, run=False, inputs={"item": {}, "usual": {}})
    node.state.set(card="378282246310005")
    with flow.context(card="3000-0000-0000-0004"):
        node.inputs["item"].write({"card": CARD})
    with flow.context(card="3000-0000-0000-0005"):
        node.inputs["usual"].default = 1
    return node


@pytest.mark.parametrize("seen", SEEN)
def test_whatever_the_code_has_seen(
    seen: Callable[[Any], str],
    surrounded: flow.Node,
    script: Script,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The field is that of another component: messages go from one to the other."""
    cards = []

    def perform(run: Any) -> None:
        card = seen(run)
        cards.append(card)
        run.log(f"in the run: {card}")
        flow.log({"at once": f"at once: {card}"})
        flow.log(CodeError(f"as an error: {card}"))
        raise CodeError(f"raised: {card}")

    caplog.set_level(logging.INFO)
    script.perform = perform
    testing.drain(errors=False)

    stored = all_that_is_stored(surrounded)
    assert cards
    assert not [card for card in cards if card in stored + caplog.text]
    for text in ("at once", "as an error", "raised"):
        assert f"{text}: {MASK}" in stored


@flow.component("t.takes_out")
class TakesOut(flow.Component):
    """Quotes what it takes out of what it was given."""

    def perform(self, order: dict[str, Any]) -> Any:
        raise CodeError(order.pop("card"))


def test_what_the_code_takes_out_of_what_it_was_given() -> None:
    node = flow.start(TakesOut, args=[{"card": CARD}])
    testing.drain(errors=False)

    assert flow.Node.objects.get(pk=node.pk).error == f"CodeError: {MASK}"
    assert CARD not in all_that_is_stored(node)


def test_what_is_raised_after_finishing(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    def perform(run: Any) -> None:
        card = run.item.read()["card"]
        with run.finishing():
            pass
        raise CodeError(card)

    script.perform = perform
    flow.start("t.scripted", data={"item": [{"card": CARD}]})
    testing.drain(errors=False)

    assert "raised_after_finishing" in caplog.text
    assert CARD not in caplog.text


@flow.component("t.quotes")
class Quotes(flow.Component):
    """Quotes its state."""

    def perform(self) -> None:
        """Do nothing."""

    def shutdown(self) -> None:
        raise CodeError(f"{self.state['card']} is locked")


def test_what_shutdown_raises() -> None:
    node = flow.start(Quotes, run=False)
    node.state.set(card=CARD)
    node.terminate()
    testing.drain()

    assert node.status == "terminated"
    assert LogEntry.objects.get().entry["error"] == f"CodeError: {MASK} is locked"


def test_what_a_group_has_read_and_written(settings: Any) -> None:
    default = {**settings.HIPQ["default"], "FLOW": {"LOG": "all"}}
    settings.HIPQ = {**settings.HIPQ, "default": default}
    heard = flow.start("t.relay", run=False, inputs={"item": {"channels": ["/flow/log"]}})
    heard.pause()
    flow.start("t.cards", data={"order": [{"id": 7, "card": CARD}]})
    port = flow.start("t.wild", run=False).outputs["card"]
    with flow.group():
        port.write(CARD)
    testing.drain()

    entries = [row.entry for row in LogEntry.objects.filter(entry__has_key="write")]
    assert [line["data"] for entry in entries for line in entry["write"]] == [
        [{"id": 7, "card": MASK}], [MASK], [{"id": 7, "card": MASK}],
    ]  # fmt: skip
    said = json.dumps([m.data for p in heard.ports.all() for m in p.messages.all()])
    assert "write" in said
    assert CARD not in said


@flow.component("t.answered_cards")
class AnsweredCards(flow.Component):
    """Quotes what it has kept before its answer came."""

    card = flow.In(default="4999")

    def perform(self) -> Any:
        self.state.set(card=CARD)
        self.job.set_key("asked")
        return hipq.WAIT

    def on_response(self, response: Any) -> None:
        raise CodeError(self.state["card"])


def test_what_was_kept_before_the_answer_came(caplog: pytest.LogCaptureFixture) -> None:
    node = flow.start(AnsweredCards)
    testing.drain()
    hipq.complete("t.answered_cards", "asked")
    testing.drain(errors=False)

    stored = all_that_is_stored(node)
    assert MASK in stored
    assert CARD not in stored + caplog.text


def test_the_default_of_a_sensitive_port() -> None:
    [declared] = [c for c in flow.components() if c["name"] == "t.answered_cards"]

    assert declared["inputs"]["card"]["default"] == MASK


def test_a_poisoned_message_comes_out_whole() -> None:
    """Its copy in the node would show what its port hides."""
    node = flow.start("t.poisoned", data={"x": ["bad"]})
    testing.run_inline(node, errors=False)
    error = flow.Node.objects.get(pk=node.pk).error
    assert error["error"] == "CodeError: cannot take it"
    assert "bad" not in json.dumps(error)
    testing.drain(errors=False)

    assert node.outputs["error"].read()["data"] == "bad"
