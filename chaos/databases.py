"""The databases under test: each fresh, as it would be set up for production."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import psycopg

from tests.postgres import PORT, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POSTGRES, SQLITE = "PostgreSQL", "SQLite"
NAME = "chaos"
START_SECONDS = 60
WAIT_SECONDS = 20


class Session(Protocol):
    """What both drivers' connections have; nothing is committed but by statements."""

    def execute(self, query: Any, /) -> Any:
        """Run a statement and return its cursor."""

    def close(self) -> None:
        """End the session."""


class Database(Protocol):
    """A database that the harness can break and ask."""

    @property
    def url(self) -> str:
        """The address, as `DATABASE_URL` takes it."""

    def connect(self) -> Session:
        """Open a session of the harness's own, past every proxy."""

    def version(self) -> str:
        """Return the version of the database."""


@contextmanager
def session(database: Database) -> Iterator[Session]:
    """Open a session of the harness for as long as the context lasts."""
    opened = database.connect()
    try:
        yield opened
    finally:
        opened.close()


class Postgres(PostgresServer):
    """A server of its own, whose commits outlive a crash."""

    SETTINGS: ClassVar = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "max_connections": "80",
        "shared_buffers": "128MB",
    }

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, **self.SETTINGS)
        self.start()
        with psycopg.connect(super().url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {NAME}")

    @property
    def url(self) -> str:  # type: ignore[override] # there is one database only
        """The address of the one database."""
        return super().url(NAME)

    @property
    def socket(self) -> str:
        """The path of the socket on which the server listens."""
        return f"{self.directory}/.s.PGSQL.{PORT}"

    def connect(self) -> psycopg.Connection[Any]:
        """Open a session of the harness, without transactions but those it begins itself."""
        return psycopg.connect(
            self.url, autocommit=True, connect_timeout=5, application_name="chaos"
        )

    def version(self) -> str:
        """Return the version of the server."""
        with session(self) as asked:
            return str(asked.execute("SHOW server_version").fetchone()[0]).partition(" ")[0]

    def kill(self) -> None:
        """Kill the postmaster as the kernel does when memory runs out; its children follow."""
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def start_again(self) -> None:
        """Start the server, also where processes of the last one are still about to end."""
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.start()
            except (RuntimeError, subprocess.CalledProcessError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return

    def is_running(self) -> bool:
        """Whether the server takes connections."""
        try:
            self.connect().close()
        except psycopg.Error:
            return False
        return True


class SqliteFile:
    """A file with a write-ahead log."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "chaos.sqlite3"

    @property
    def url(self) -> str:
        """The address of the file."""
        return f"sqlite:///{self.path}"

    def connect(self) -> sqlite3.Connection:
        """Open a session of the harness, without transactions but those it begins itself."""
        return sqlite3.connect(
            self.path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )

    def version(self) -> str:
        """Return the version of the library."""
        return sqlite3.sqlite_version

    def stop(self, mode: str = "") -> None:
        """Do nothing: there is no server."""
