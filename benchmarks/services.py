"""The servers that are measured with: PostgreSQL and Redis."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from tests.postgres import temporary_server

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 10
SHOWN = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")
DATABASE_PREFIX = "hipq_bench_"
EMBEDDED_SETTINGS = {
    # As a server in production: what was committed outlives a crash of the machine.
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
}


class NoServiceError(Exception):
    """A service cannot be had here; says why."""


@dataclass(frozen=True)
class Services:
    """Addresses of the servers; without a Redis `redis` is empty and `missing` says why."""

    postgres: str
    redis: str = ""
    missing: str = ""

    def fresh_postgres(self, name: str) -> str:
        """Return the address of an empty database of this name."""
        database = sql.Identifier(DATABASE_PREFIX + name)
        with psycopg.connect(self._database("postgres"), autocommit=True) as connection:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            connection.execute(drop.format(database))
            connection.execute(sql.SQL("CREATE DATABASE {}").format(database))
            # Else the writes of the last run's pages would fall into this one.
            connection.execute("CHECKPOINT")
        return self._database(DATABASE_PREFIX + name)

    def drop_postgres(self) -> None:
        """Drop all databases of the benchmark."""
        with psycopg.connect(self._database("postgres"), autocommit=True) as connection:
            like = DATABASE_PREFIX.replace("_", r"\_") + "%"
            query = "SELECT datname FROM pg_database WHERE datname LIKE %s"
            for (name,) in connection.execute(query, [like]).fetchall():
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                connection.execute(drop.format(sql.Identifier(name)))

    def fresh_redis(self) -> str:
        """Return the address of Redis after emptying its database; raise `NoServiceError`."""
        if not self.redis:
            raise NoServiceError(self.missing)
        if _asked(self.redis, "FLUSHDB") != "+OK":
            raise NoServiceError(f"Redis at {self.redis} does not take FLUSHDB.")
        return self.redis

    def versions(self) -> dict[str, str]:
        """Return the versions of the servers."""
        with psycopg.connect(self._database("postgres")) as connection:
            values = {name: connection.execute(f"SHOW {name}").fetchone() for name in SHOWN}
        version, *settings = [f"{name} {row[0]}" for name, row in values.items() if row]
        found = {"PostgreSQL": version.partition(" ")[2], "its settings": ", ".join(settings)}
        if self.redis:
            found["Redis"] = _redis_version(self.redis)
        return found

    def _database(self, name: str) -> str:
        return urlunsplit(urlsplit(self.postgres)._replace(path=f"/{name}"))


def open_services(stack: ExitStack, folder: Path, *, redis: bool) -> Services:
    """Start what is not given by `DATABASE_URL` and `REDIS_URL`; it ends with `stack`.

    A Redis that is given by address must be for this alone: its database is emptied.
    """
    postgres = os.environ.get("DATABASE_URL", "")
    if postgres and not urlsplit(postgres).scheme.startswith("postgres"):
        raise NoServiceError(f"DATABASE_URL {postgres!r} is not PostgreSQL; unset it or change it.")
    if not postgres:
        server = stack.enter_context(temporary_server(**EMBEDDED_SETTINGS))
        postgres = _plain(server.url("postgres"))
    if not redis:
        return Services(postgres)
    try:
        address = os.environ.get("REDIS_URL") or _start_redis(stack, folder)
    except NoServiceError as error:
        return Services(postgres, missing=str(error))
    return Services(postgres, address)


def _plain(address: str) -> str:
    """Return the address of a socket in the form that every driver understands."""
    parts = urlsplit(address)
    return urlunsplit(
        parts._replace(netloc=f"{parts.username}@", query=f"{parts.query}&port={parts.port}")
    )


def _start_redis(stack: ExitStack, folder: Path) -> str:
    """Start a Redis of our own, which keeps nothing on disk, and return its address."""
    program = shutil.which("redis-server")
    if program is None:
        raise NoServiceError("There is no redis-server; install it, or set REDIS_URL.")
    port = _free_port()
    directory = stack.enter_context(TemporaryDirectory(prefix="hipq-redis-"))
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen([*command, directory], stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    address = f"redis://127.0.0.1:{port}/0"
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            if _asked(address, "PING") == "+PONG":
                return address
        except OSError:
            time.sleep(0.05)
    raise NoServiceError(f"redis-server did not start; see {folder / 'redis.log'}.")


def _asked(address: str, command: str) -> str:
    """Return Redis's answer to a command: one line, or the text after a line of its length."""
    parts = urlsplit(address)
    where = (parts.hostname or "127.0.0.1", parts.port or 6379)
    with (
        socket.create_connection(where, timeout=START_SECONDS) as connection,
        connection.makefile("rwb") as stream,
    ):
        database = parts.path.lstrip("/") or "0"
        stream.write(f"SELECT {database}\r\n{command}\r\n".encode())
        stream.flush()
        stream.readline()
        line = stream.readline().decode().strip()
        return stream.read(int(line[1:])).decode() if line.startswith("$") else line


def _redis_version(address: str) -> str:
    lines = _asked(address, "INFO server").splitlines()
    versions = [line.partition(":")[2] for line in lines if line.startswith("redis_version:")]
    return versions[0] if versions else "unknown"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
