"""A real PgBouncer in transaction mode, where the machine has the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from tempfile import TemporaryDirectory

import psycopg
import pytest

START_SECONDS = 10
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
SETTINGS = """
[databases]
* = {target}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = transaction
unix_socket_dir = {directory}
default_pool_size = 4
server_round_robin = 1
"""
"""Each transaction gets another session of the server than the one before: nothing is kept."""


@contextmanager
def transaction_pooler(server: psycopg.ConnectionInfo) -> Iterator[str]:
    """Run a PgBouncer before a server that there is a connection to; yield the database's address.

    Skip the test where there is no such program.
    """
    program = shutil.which("pgbouncer", path=PATH)
    if program is None:
        pytest.skip("needs the program pgbouncer: Debian's package of that name has it")
    with TemporaryDirectory(prefix="hipq-pgbouncer-") as directory:
        port = _free_port()
        settings = Path(directory, "pgbouncer.ini")
        settings.write_text(
            SETTINGS.format(target=_connection_string(server), port=port, directory=directory)
        )
        Path(directory).chmod(0o755)
        with Path(directory, "log").open("wb") as log:
            command = [program, *_as_other_user(), str(settings)]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            address = f"postgres://anybody@127.0.0.1:{port}/{server.dbname}"
            _await_start(process, Path(directory, "log"), address)
            yield address
        finally:
            process.kill()
            process.wait()


def _connection_string(server: psycopg.ConnectionInfo) -> str:
    password = f" password={server.password}" if server.password else ""
    return f"host={server.host} port={server.port} user={server.user}{password}"


def _as_other_user() -> list[str]:
    """PgBouncer refuses to run as root."""
    return ["--user", "nobody"] if os.geteuid() == 0 else []


def _await_start(process: subprocess.Popen[bytes], log: Path, address: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        else:
            return


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
