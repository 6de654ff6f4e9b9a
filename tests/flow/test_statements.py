"""What the hot statements read is what the ORM reads."""

from __future__ import annotations

from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.models import Message
from hipq_django.flow.runs.loading import FIRST_PAGE
from tests.testapp.flows import Script

pytestmark = pytest.mark.django_db


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
