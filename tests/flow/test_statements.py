"""What the hot statements read is what the ORM reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db.models import F, QuerySet

from hipq_django import flow
from hipq_django.database.lookups import ids_in
from hipq_django.flow import testing
from hipq_django.flow.models import Message, Node
from hipq_django.flow.runs.loading import FIRST_PAGE
from hipq_django.flow.statements import built_once
from tests.testapp.flows import Double, Script

pytestmark = pytest.mark.django_db


def test_a_query_is_built_once_and_fetches_the_rows_of_any_ids() -> None:
    built: list[Sequence[int]] = []

    @built_once
    def named(ids: Sequence[int], using: str) -> QuerySet[Node]:
        built.append(ids)
        rows = Node.objects.using(using).filter(ids_in("pk", ids)).order_by("pk")
        return rows.only("id", "state_values", "rate_time").annotate(component=F("job_type__name"))

    nodes = [flow.start(Double, run=False) for _ in range(3)]
    nodes[1].state.set(last={"a": [1.5, None]})
    assert named([], "default") == []
    assert named([nodes[0].pk], "default") == nodes[:1]
    found: Any = named({nodes[2].pk, nodes[1].pk}, "default")

    assert (found, built) == (nodes[1:], [[nodes[0].pk]])
    assert [row.component for row in found] == ["t.double", "t.double"]
    assert found[0].state_values == {"last": {"a": [1.5, None]}}
    assert found[0].rate_time == Node.objects.get(pk=nodes[1].pk).rate_time
    assert found[0].using == "default"
    assert found[0].get_deferred_fields() >= {"args", "rest"}


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
