"""What the connections of a process's own threads are told about dead peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from hipq_django.processes.connections import look_after, tcp_options
from tests.concurrency.sessions import Session

pytestmark = pytest.mark.conformance


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


def options_of(**own: Any) -> dict[str, Any]:
    """Return the options of an own connection where the project's are these."""
    other = connection.copy()
    other.settings_dict["OPTIONS"] = own
    look_after(other)
    options: dict[str, Any] = other.settings_dict["OPTIONS"]
    return options


@pytest.mark.postgres
def test_they_notice_within_three_heartbeats() -> None:
    assert options_of() == {
        "connect_timeout": 10,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }


@pytest.mark.postgres
def test_what_the_project_says_counts() -> None:
    options = options_of(connect_timeout=3, sslmode="require")

    assert (options["connect_timeout"], options["sslmode"]) == (3, "require")
    assert options["tcp_user_timeout"] == 30_000


@pytest.mark.postgres
def test_a_pool_is_everybodys() -> None:
    assert options_of(pool=True) == {"pool": True}


@pytest.mark.postgres
def test_handlers_and_requests_have_what_the_project_says() -> None:
    options_of()

    assert "tcp_user_timeout" not in connection.settings_dict["OPTIONS"]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="is about SQLite")
def test_sqlite_has_no_peer() -> None:
    assert options_of(timeout=20) == {"timeout": 20}


def test_the_shortest_beat_makes_whole_numbers() -> None:
    assert set(map(type, tcp_options(0.003).values())) == {int}
    assert min(tcp_options(0.003).values()) == 1
