"""A Django project of its own, made anew, into which the code of a document is written."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.core.management import call_command

from tests.conftest import ROOT
from tests.docs.documents import Block

# What differs between the reader's machine and the test's.
SETTINGS_OF_THE_TEST = """
import environ
if environ.Env().bool("DOCS_POSTGRES"):
    DATABASES = {"default": environ.Env().db_url("DATABASE_URL")}
"""


def free_port() -> int:
    """Return a port that nobody listens to."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    """Return whether somebody takes connections at a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class FreshProject:
    """What `django-admin startproject` and `startapp` make, in a folder of its own."""

    folder: Path
    database_url: str
    variables: dict[str, str] = field(default_factory=dict)

    def create(self, *apps: str) -> None:
        """Make the project `mysite` and its apps."""
        call_command("startproject", "mysite", str(self.folder))
        for app in apps:
            (self.folder / app).mkdir()
            call_command("startapp", app, str(self.folder / app))

    def write(self, blocks: Sequence[Block], settings: str = "") -> None:
        """Append each block to the file that it names; then what only the test needs."""
        for block in blocks:
            with (self.folder / block.file).open("a") as file:
                file.write(f"\n{block.text}")
        with (self.folder / "mysite" / "settings.py").open("a") as file:
            file.write(SETTINGS_OF_THE_TEST + settings)

    def manage(self, *arguments: str, seconds: float = 60) -> str:
        """Run a command of manage.py; return what it prints, fail unless it succeeds."""
        return self.run("manage.py", *arguments, seconds=seconds)

    @contextmanager
    def running(self, *arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run Python beside the block, at whose end it is killed."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *arguments: str, seconds: float = 60) -> str:
        """Run Python; return what it prints, fail unless it succeeds."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout}"
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        without = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH"}
        inherited = {name: value for name, value in os.environ.items() if name not in without}
        return inherited | {
            "DATABASE_URL": self.database_url,
            "DOCS_POSTGRES": str(self.database_url.startswith("postgres")),
            "PYTHONPATH": str(ROOT),
            **self.variables,
        }
