from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import time_machine
from django.db import connections
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from hipq_django import events
from tests.flushing import flush
from tests.noon import MONDAY_NOON
from tests.plugin import renamed
from tests.postgres import PostgresServer, temporary_server

if TYPE_CHECKING:
    from tests.declaring import Declare

ROOT = Path(__file__).parent.parent
UNIT = ROOT / "tests" / "unit"
CHROMIUM = Path("/usr/bin/chromium")

# How long an example takes says more about the machine's other work than about the code.
hypothesis.settings.register_profile("commit", max_examples=25, deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=200, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("nightly" if config.option.all else "commit")


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = _reasons_to_skip()
    for item in items:
        if UNIT in item.path.parents:
            item.add_marker("unit")
        if item.get_closest_marker("postgres"):
            item.add_marker("conformance")
        for marker, reason in absent.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _reasons_to_skip() -> dict[str, str]:
    reasons = {}
    if connections["default"].vendor != "postgresql":
        reasons["postgres"] = "needs PostgreSQL: HIPQ_TEST_DATABASE=postgres"
    else:
        reasons["embedded"] = "is about the embedded default: HIPQ_TEST_DATABASE=sqlite"
    if os.environ.get("HIPQ_TEST_ENGINE") == "orm":
        reasons["fast"] = "is about the statements of the other engines"
    if not CHROMIUM.exists():
        reasons["browser"] = f"needs Debian's package chromium: there is no {CHROMIUM}"
    return reasons


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_modify_db_settings: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """Copy the databases, where pytest-django migrates each database of each process."""
    from tests.databases import copied_databases  # settings are not read yet where this file is

    with ExitStack() as made:
        with django_db_blocker.unblock():
            made.enter_context(copied_databases())
        yield
        with django_db_blocker.unblock():
            made.close()


@pytest.fixture(scope="session", autouse=True)
def databases_are_flushed_quickly() -> Iterator[None]:
    """Let tests that commit empty the databases in a millisecond instead of a tenth of a second."""

    def quick(case: Any) -> None:
        for alias in case._databases_names(include_mirrors=False):
            flush(alias)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", quick)
        yield


@pytest.fixture(autouse=True)
def names_are_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests enqueue jobs of types that nobody declares, as other projects may."""
    monkeypatch.setattr("hipq_django.models.undeclared_names._strict_in_tests", False)


@pytest.fixture(autouse=True)
def the_clock_is_put_back() -> Iterator[None]:
    """Fail if a test has left hipq's clock moved: the next one would enqueue for later."""
    from hipq_django.database import clock

    yield
    by = clock.shift()
    clock.shift(None)
    assert not by


@pytest.fixture(autouse=True)
def no_transaction_is_left_open() -> Iterator[None]:
    """Fail if a test has left one open: no other process would see what the next one writes."""
    yield
    for connection in connections.all(initialized_only=True):
        driver: Any = connection.connection
        is_outside = driver is not None and not connection.in_atomic_block
        if is_outside and connection.vendor == "postgresql":
            status = driver.info.transaction_status
            if status.name != "IDLE":
                connection.close()
            assert status.name in ("IDLE", "UNKNOWN"), (connection.alias, status)


@pytest.fixture(autouse=True)
def every_line_is_logged(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail if a line of the package could not be logged, unless the test is about that."""
    lost: list[str] = []

    def note(record: logging.LogRecord) -> None:
        lost.append(record.getMessage())

    if request.node.get_closest_marker("loses_lines") is None:
        monkeypatch.setattr(events, "note_unlogged", note)
    yield
    assert not lost


@pytest.fixture
def frozen_time() -> Iterator[time_machine.Traveller]:
    """A clock that stands at noon of a Monday until the test moves it."""
    with time_machine.travel(MONDAY_NOON, tick=False) as traveller:
        yield traveller


@pytest.fixture
def declare() -> Iterator[Declare]:
    """`hipq_django.job_type` for the time of the test."""
    from tests.declaring import Declare  # models are not loaded yet where this file is read

    declare = Declare()
    yield declare
    declare.forget_all()


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment variables with which another process reaches this test's databases."""
    return os.environ | {
        "DATABASE_URL": _test_database_url("default", "DATABASE_URL"),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "OTHER_DATABASE_URL": _test_database_url("other", "OTHER_DATABASE_URL"),
        "PYTHONPATH": str(ROOT),
    }


def _test_database_url(alias: str, variable: str) -> str:
    name = Path(connections[alias].settings_dict["TEST"]["NAME"]).name
    return renamed(os.environ[variable], name)


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """A running server of the test's own, which it may stop and start again."""
    with temporary_server() as server:
        yield server
