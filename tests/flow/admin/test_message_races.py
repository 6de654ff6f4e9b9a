"""A message is edited while others edit it, read it, or let its node go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.admin.forms import fingerprint
from hipq_django.flow.admin.message_pages import drop_message, edit_message
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import Message, Node
from tests.concurrency.sessions import run_together
from tests.testapp.flows import CannotTakeItsAnswer

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]

ROUNDS = 8


@pytest.fixture
def node() -> Node:
    """A paused node, which doubles numbers."""
    node = flow.start("t.double", run=False)
    node.pause()
    return node


def message_on(node: Node) -> Message:
    node.inputs["number"].write(1)
    return Message.objects.select_related("port__node").get(port__node=node.pk)


def edit(message: Message, value: int) -> None:
    edit_message(message, fingerprint(1), value)


def test_of_two_who_edit_one_is_refused(node: Node) -> None:
    for _ in range(ROUNDS):
        message = message_on(node)

        results = run_together(partial(edit, message, 11), partial(edit, message, 12))

        assert sorted(isinstance(result, FlowError) for result in results) == [False, True]
        won = 11 if results[0] is None else 12
        assert node.inputs["number"].read() == won


def test_who_reads_gets_the_message_as_it_is_or_was(node: Node) -> None:
    for _ in range(ROUNDS):
        message = message_on(node)

        edited, value = run_together(partial(edit, message, 11), node.inputs["number"].read)

        assert value == (11 if edited is None else 1)
        assert node.inputs["number"].size == 0


def drop(message: Message, _value: int) -> None:
    drop_message(message, fingerprint(1))


@pytest.mark.parametrize("change", [edit, drop])
def test_what_a_run_has_read_that_is_tried_again_with_its_answer_stays_as_it_is(
    change: Callable[[Message, int], None],
) -> None:
    node = flow.start(CannotTakeItsAnswer, data={"number": [1]})
    testing.drain()
    hipq.complete("t.cannot_take_its_answer", "asked", "yes")
    testing.drain(errors=False)
    node.pause()
    assert node.status == "queued"
    message = Message.objects.select_related("port__node").get()

    with pytest.raises(FlowError, match="is under way and may have read"):
        change(message, 2)
    assert node.inputs["number"].peek() == [1]
