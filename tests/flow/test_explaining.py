"""`flow.explain` says why a node does not run."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync

from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.models import Queue
from tests.flow.conftest import in_status
from tests.testapp.flows import Recorder

pytestmark = pytest.mark.django_db


def codes(node: flow.Node) -> list[str]:
    return [reason.code for reason in flow.explain(node)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("completed", ["no_messages"]),
        ("suspended", ["no_messages"]),
        ("queued", ["not_dispatched"]),
        ("failed", ["failed"]),
        ("terminating", ["not_dispatched"]),
        ("terminated", ["terminated"]),
    ],
)
def test_each_status_has_its_reason(status: str, expected: list[str]) -> None:
    assert codes(in_status(status)) == expected


def test_what_holds_a_node_comes_first() -> None:
    node = flow.start(Recorder, run=False)
    node.lock(60)
    node.pause()

    assert codes(node) == ["node_paused", "node_locked"]


def test_a_run_that_waits_says_what_its_job_waits_for() -> None:
    node = flow.start(Recorder)
    Queue.objects.update(paused=True)
    testing.drain()

    assert "paused" in codes(node)


@pytest.mark.parametrize(
    ("component", "data", "code", "said"),
    [
        ("t.both", {"a": [1]}, "incomplete",
         "It looked at its messages and waits for more, on b."),
        ("flow.widget", {"order": [1, 2]}, "for_a_person",
         "A person has to look at 2 messages and to write to the out-ports."),
    ],
)  # fmt: skip
def test_a_node_that_left_its_messages_says_for_what_it_waits(
    component: str, data: Any, code: str, said: str
) -> None:
    node = flow.start(component, data=data)
    testing.drain()

    [reason] = flow.explain(node)
    assert (reason.code, str(reason)) == (code, said)


def test_a_deleted_node_has_no_reasons() -> None:
    node = in_status("terminated")
    node.delete()
    with pytest.raises(flow.NodeDeletedError):
        async_to_sync(flow.aexplain)(node)
