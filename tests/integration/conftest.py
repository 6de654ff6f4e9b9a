"""What the tests with a database share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from hipq_django.models import Queue
from hipq_django.models.catalog import get_queue
from hipq_django.processes.connections import give_back_own
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs
from tests.settings import ENGINE
from tests.testapp import limits

ConfigureQueue = Callable[..., Queue]


@pytest.fixture
def configure_queue(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> ConfigureQueue:
    """Name a queue in the setting, with its options and throttlers, and return its row."""

    def configure(*throttlers: Any, name: str = "default", **options: Any) -> Queue:
        for index, throttler in enumerate(throttlers):
            monkeypatch.setattr(limits, f"throttler_{index}", throttler, raising=False)
        paths = [f"{limits.__name__}.throttler_{index}" for index in range(len(throttlers))]
        queues = {name: {"THROTTLERS": paths, **options}}
        settings.HIPQ = {"default": {"ENGINE": ENGINE, "QUEUES": queues}}
        return get_queue("default", name)

    return configure


@pytest.fixture(autouse=True)
def connections_are_the_projects() -> Iterator[None]:
    """Give back the connection that a worker or consumer in this thread has made its own."""
    yield
    give_back_own()


@pytest.fixture(params=["one at a time", "all at once"])
def start(request: pytest.FixtureRequest) -> Any:
    """Start what may start: by a worker with one thread, and by one with very many."""
    if request.param == "one at a time":
        return run_due_jobs
    return lambda: HandWorker().work()
