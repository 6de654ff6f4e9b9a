"""The databases of a test process: copies of one that is migrated once a run."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from hipq_django.database.partitions import Partitions
from tests.plugin import ADMINISTRATOR, RUN, TEMPLATE, renamed

ALIASES = ("default", "other")


@contextmanager
def named_databases(databases: dict[str, dict[str, str]]) -> Iterator[None]:
    """Let the settings name more databases, which nobody connects to."""
    made = connections.configure_settings({"default": {}, **deepcopy(databases)})
    with ExitStack() as stack:
        for known in (settings.DATABASES, connections.settings):
            stack.enter_context(mock.patch.dict(known, {name: made[name] for name in databases}))
        yield
    for alias in databases:
        with suppress(AttributeError):  # it was not asked for
            del connections[alias]


@contextmanager
def copied_databases() -> Iterator[None]:
    """Make the databases that the settings name for tests, and let the settings lead to them."""
    made = [connections[alias] for alias in ALIASES]
    with _alone():
        template = _template(connections["default"])
        for connection in made:
            _copy(connection, template, str(connection.settings_dict["TEST"]["NAME"]))
    yield
    for connection in made:
        connection.close()
        _drop(connection, str(connection.settings_dict["NAME"]))


@contextmanager
def _alone() -> Iterator[None]:
    """Only one process of the run is in the block: a database that is copied has no other user."""
    with Path(os.environ[RUN], "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _template(connection: BaseDatabaseWrapper) -> str:
    """Return the name of a database with all tables, which the first process makes."""
    is_postgres = connection.vendor == "postgresql"
    name = TEMPLATE if is_postgres else str(Path(os.environ[RUN], TEMPLATE))
    is_made = Path(os.environ[RUN], "template-is-made")
    if not is_made.exists():
        _drop(connection, name)
        if is_postgres:
            make(name)
        _lead_to(connection, name)
        call_command("migrate", database=connection.alias, verbosity=0)
        if os.environ.get("HIPQ_TEST_TABLES"):
            _give_half_of_the_queues_a_table(connection)
        is_made.touch()
    return name


def _give_half_of_the_queues_a_table(connection: BaseDatabaseWrapper) -> None:
    """Make hipq_job a table of tables, as `hipq_tables` does, with a table for the even ids."""
    even = ", ".join(map(str, range(2, 800, 2)))
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        Partitions(connection.alias).divide()
        cursor.execute(f"CREATE TABLE own PARTITION OF hipq_job FOR VALUES IN ({even})")
        cursor.execute("ALTER TABLE hipq_queue ALTER COLUMN id SET MAXVALUE 799 SET CYCLE")


def _copy(connection: BaseDatabaseWrapper, template: str, name: str) -> None:
    _drop(connection, name)
    _lead_to(connection, name)
    if connection.vendor == "postgresql":
        make(name, template)
    else:
        shutil.copyfile(template, name)


def _lead_to(connection: BaseDatabaseWrapper, name: str) -> None:
    connection.close()
    connection.settings_dict["NAME"] = connections.settings[connection.alias]["NAME"] = name


def _drop(connection: BaseDatabaseWrapper, name: str) -> None:
    if connection.vendor == "postgresql":
        on_server(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    else:
        for part in ("", "-wal", "-shm"):
            Path(f"{name}{part}").unlink(missing_ok=True)


def make(name: str, template: str = "template1") -> None:
    """Make a database for the role of the tests."""
    owner = urlsplit(os.environ["DATABASE_URL"]).username
    on_server(f'CREATE DATABASE "{name}" TEMPLATE "{template}" OWNER "{owner}"')


def forget_statistics(connection: BaseDatabaseWrapper) -> None:
    """Let PostgreSQL know nothing of the values in our tables, as before their first ANALYZE."""
    name = str(connection.settings_dict["NAME"])
    on_server("DELETE FROM pg_statistic WHERE starelid::regclass::text LIKE 'hipq_%'", name)


def on_server(statement: str, database: str = "postgres") -> None:
    """Execute a statement as an administrator, usually in no database that tests use."""
    url = renamed(os.environ[ADMINISTRATOR], database)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(statement)
