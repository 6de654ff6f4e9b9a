"""What the tests with several connections share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.concurrency.sessions import Session
from tests.integration.conftest import configure_queue, declare, frozen_time

__all__ = ["configure_queue", "declare", "frozen_time"]


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    """A connection beside the test's own."""
    session = Session()
    yield session
    session.close()
