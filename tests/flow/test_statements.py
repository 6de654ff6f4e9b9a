"""What the hot statements read is what the ORM reads."""

from __future__ import annotations

from typing import Any

import pytest

from hipq_django import flow
from hipq_django.domain.serialization import to_json
from hipq_django.flow import testing
from hipq_django.flow.models import Message
from hipq_django.flow.runs.loading import FIRST_PAGE
from hipq_django.flow.statements import MANY
from tests.testapp.flows import Script

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def test_a_packet_knows_when_it_was_written_on_every_page(script: Script) -> None:
    node = flow.start("t.scripted", run=False)
    node.inputs["item"].write_many(range(FIRST_PAGE + 2))
    written = dict(Message.objects.values_list("pk", "create_time"))
    read: dict[int, Any] = {}

    def perform(run: Any) -> None:
        while packet := run.item.packet():
            read[packet.id] = packet.time

    script.perform = perform
    testing.drain()

    assert len(written) == FIRST_PAGE + 2
    assert read == written
    assert {moment.utcoffset() for moment in read.values()} == {
        moment.utcoffset() for moment in written.values()
    }


@pytest.mark.parametrize("count", [1, MANY, MANY + 1])
def test_what_a_run_writes_is_read_as_its_copy_in_the_run(script: Script, count: int) -> None:
    """The text of the first encoding may say a number, or a key, otherwise."""
    text = "\\\t\u00e9\U0001f600"
    value = {"big": 1e23, "zero": -0.0, 1: "number", "pair": (1, text)}
    for given in (value, value | {"big": 1}):
        _write_and_read(script, given, count)


def _write_and_read(script: Script, value: Any, count: int) -> None:
    node = flow.start("t.scripted", run=False)
    node.inputs["item"].write_many([value] * count)

    def perform(run: Any) -> None:
        for item in run.each("item"):
            run.out.write(item)
        run.out.write_many([value] * count)

    script.perform = perform
    testing.drain()

    assert list(node.outputs["out"]) == [to_json(value)] * 2 * count
