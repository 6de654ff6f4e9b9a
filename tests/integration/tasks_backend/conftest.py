"""What tests of the tasks of Django share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hipq_django.tasks_backend.names import task_finished
from tests.listening import connected


@pytest.fixture
def finished() -> Iterator[list[Any]]:
    """The results with which `task_finished` was sent."""
    sent: list[Any] = []

    def note(task_result: Any, **_: Any) -> None:
        sent.append(task_result)

    with connected(note, task_finished):
        yield sent
