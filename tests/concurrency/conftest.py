"""What the tests with several connections share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hipq_django.scheduler import current_batch
from tests.concurrency.sessions import Session
from tests.integration.conftest import configure_queue

__all__ = ["configure_queue"]


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    """A connection beside the test's own."""
    session = Session()
    yield session
    session.close()


@pytest.fixture(autouse=True)
def _deferred_results_are_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_batch, "DEFER_SECONDS", 0.0)
