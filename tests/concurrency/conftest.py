"""What the tests with several connections share."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from django.db import connection

from hipq_django.database import isolation
from hipq_django.scheduler import batch
from tests.concurrency.sessions import Session
from tests.integration.conftest import configure_queue, connections_are_the_projects

__all__ = ["configure_queue", "connections_are_the_projects"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    conform(Path(__file__).parent, items)


def conform(folder: Path, items: list[pytest.Item]) -> None:
    """Run all tests of a folder on PostgreSQL too: they are about transactions that meet."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker("conformance")


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    """A connection beside the test's own."""
    session = Session()
    yield session
    session.close()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a race is run that does not stop where the test says: at night, very often."""
    return 30 if request.config.option.all else 3


@pytest.fixture(autouse=True)
def _deferred_results_are_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "MOST_PAUSE", 0.0)


@pytest.fixture(autouse=True)
def _a_pass_writes_all_however_slow_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "WRITE_SECONDS", inf)
    monkeypatch.setattr(isolation, "MOST_SPENT", 1.0)


RAISES = {
    "postgresql": "RAISE EXCEPTION 'too much' USING ERRCODE = 'program_limit_exceeded'",
    "sqlite": "SELECT RAISE(FAIL, 'too much')",
}[connection.vendor]
"""How a trigger of the project's may refuse a row; the other ways are in `unit/test_errors`.

On PostgreSQL the driver takes this for an outage. On SQLite it undoes nothing of its statement.
"""

SKIPS = {"postgresql": "RETURN NULL", "sqlite": "SELECT RAISE(IGNORE)"}[connection.vendor]
"""How a trigger may let it be, without an error."""

_TRIGGERS = {
    "postgresql": (
        [
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {how}; END $$",
            "CREATE TRIGGER refuse BEFORE {when} ON {table} FOR EACH ROW WHEN ({condition}) "
            "EXECUTE FUNCTION refuse()",
        ],
        "DROP FUNCTION IF EXISTS refuse() CASCADE",
    ),
    "sqlite": (
        [
            "CREATE TRIGGER refuse BEFORE {when} ON {table} FOR EACH ROW WHEN {condition} "
            "BEGIN {how}; END",
        ],
        "DROP TRIGGER IF EXISTS refuse",
    ),
}[connection.vendor]


class Refuse:
    """Lets the database refuse changes of rows that meet a condition, until it is told not to."""

    def __init__(self, how: str) -> None:
        self._how = how

    def __call__(self, condition: str, table: str = "hipq_job", when: str = "UPDATE") -> None:
        create, _ = _TRIGGERS
        named = {"condition": condition, "how": self._how, "table": table, "when": when}
        with connection.cursor() as cursor:
            for statement in create:
                cursor.execute(statement.format(**named))

    def end(self) -> None:
        """Refuse nothing any more."""
        _, drop = _TRIGGERS
        with connection.cursor() as cursor:
            cursor.execute(drop)


@pytest.fixture
def refuse() -> Iterator[Refuse]:
    """Let the database refuse rows."""
    refuse = Refuse(RAISES)
    yield refuse
    refuse.end()


@pytest.fixture(params=[RAISES, SKIPS], ids=["raised", "skipped"])
def refuse_or_skip(request: pytest.FixtureRequest) -> Iterator[Refuse]:
    """Let the database refuse rows, or pass over them and say nothing."""
    refuse = Refuse(request.param)
    yield refuse
    refuse.end()


@pytest.fixture
def skip() -> Iterator[Refuse]:
    """Let the database pass over rows, and say nothing."""
    skip = Refuse(SKIPS)
    yield skip
    skip.end()
