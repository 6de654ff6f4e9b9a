"""What is told of declared components."""

from __future__ import annotations

from typing import Any

import pytest

from hipq_django import flow
from hipq_django.flow.models import Message
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.worker import WorkerProcess


@flow.component("t.says_nothing")
class SaysNothing(flow.Component):
    def perform(self) -> None:
        pass


@flow.component("t.says_nothing_either")
def says_nothing(x: Any) -> Any:
    return x


@pytest.mark.parametrize("name", ["t.says_nothing", "t.says_nothing_either"])
def test_a_component_without_docstring_has_no_description(name: str) -> None:
    told = {component["name"]: component for component in flow.components()}

    assert told[name]["description"] == ""


@flow.component("t.of_a_queue", queue="partner")
def of_a_queue(x: Any) -> Any:
    """Is run by workers of another queue."""
    return x


def starts(**options: Any) -> None:
    """Let a worker register, as it does when it starts."""
    WorkerProcess(WorkerOptions(**options))._register()


def heard(channel: str) -> list[Any]:
    return [row.data for row in Message.objects.filter(context__channel=channel)]


@pytest.mark.django_db
@pytest.mark.parametrize("listens_to", ["/flow/components/partner", "/flow/components", "/flow"])
def test_a_worker_that_starts_tells_its_components(listens_to: str) -> None:
    flow.start("t.relay", inputs={"item": {"channels": [listens_to]}}, run=False)
    starts(queues=["partner"])

    [told] = heard("/flow/components/partner")
    assert told == flow.components("partner")
    assert "t.of_a_queue" in [component["name"] for component in told]
    assert Message.objects.count() == 1


@pytest.mark.django_db
def test_a_worker_tells_of_the_queues_that_it_serves_if_somebody_listens() -> None:
    starts()
    assert not Message.objects.exists()
    flow.start("t.relay", inputs={"item": {"channels": ["/flow/components"]}}, run=False)
    starts(exclude=["partner"])

    assert heard("/flow/components/partner") == []
    assert len(heard("/flow/components/default")) == 1
