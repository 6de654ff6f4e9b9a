"""The tutorials, done as they are written: block by block, in a folder of its own.

What differs from a reader's machine: the package is installed already, the ports are free ones,
Python does what curl does, and PostgreSQL takes the place of SQLite where this run is about it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from django.core.management import call_command

from tests.conftest import ROOT
from tests.docs.documents import Block, Document
from tests.docs.project import SETTINGS_OF_THE_TEST, FreshProject, free_port, listens
from tests.processes.conftest import eventually

TUTORIALS = [Document(ROOT / "docs" / name) for name in ("tutorial.md", "tutorial-flow.md")]
SITE_PORT, BANK_PORT = "8000", "8001"
COMMAND_SECONDS = 120


class Reader:
    """Somebody who does what the tutorial says, in three terminals."""

    def __init__(self, project: FreshProject) -> None:
        self._project = project
        self._bank_log, self._site_log = project.folder / "bank.log", project.folder / "site.log"
        self._ports = {SITE_PORT: str(free_port()), BANK_PORT: str(free_port())}
        self._servers = ExitStack()

    def write(self, block: Block) -> None:
        """Add the block to the end of the file that it names, or create the file."""
        with (self._project.folder / block.file).open("a") as file:
            file.write(f"\n{self._with_free_ports(block.text)}")
            if block.file.endswith("settings.py"):
                file.write(SETTINGS_OF_THE_TEST)

    def type(self, command: str) -> str:
        """Run a command; return what appears, nothing where it goes on by itself."""
        program, *arguments = shlex.split(self._with_free_ports(command))
        programs: dict[str, Callable[..., str]] = {
            "cd": self._cd,
            "curl": self._curl,
            "django-admin": self._django_admin,
            "pip": self._pip,
            "python": self._python,
        }
        return programs[program](*arguments)

    def bank_says(self) -> str:
        """Return what the bank has printed, with the ports of the tutorial."""
        text = self._bank_log.read_text()
        for port, own in self._ports.items():
            text = text.replace(f":{own}/", f":{port}/")
        return text

    def leave(self) -> None:
        """Stop the servers."""
        self._servers.close()

    # The programs

    def _pip(self, command: str, what: str) -> str:
        assert (command, what) == ("install", ".")
        return ""

    def _django_admin(self, command: str, name: str) -> str:
        (self._project.folder / name).mkdir()
        call_command(command, name, self._project.folder / name)
        return ""

    def _cd(self, folder: str) -> str:
        self._project.folder /= folder
        return ""

    def _curl(self, option: str, data: str, url: str) -> str:
        assert option == "-d"
        if url == "CALLBACK":
            url = re.findall(r"http\S+", self._bank_log.read_text())[-1]
        return post(data, url)

    def _python(self, *arguments: str) -> str:
        if arguments == ("bank.py",):
            return self._serve(BANK_PORT, *arguments, log=self._bank_log)
        if "runserver" in arguments:
            return self._serve(SITE_PORT, *arguments, "--noreload", log=self._site_log)
        return self._project.run(*arguments, seconds=COMMAND_SECONDS)

    def _serve(self, port: str, *arguments: str, log: Path) -> str:
        self._servers.enter_context(self._project.running(*arguments, log=log))
        eventually(lambda: listens(int(self._ports[port])), f"{arguments} listens")
        return ""

    def _with_free_ports(self, text: str) -> str:
        for port, own in self._ports.items():
            text = text.replace(port, own)
        return text


def post(data: str, url: str) -> str:
    """Do what `curl -d DATA URL` does."""
    with urlopen(url, data.encode(), timeout=COMMAND_SECONDS) as reply:
        return str(reply.read(), "utf-8")


def typed(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a block, each with the lines that it shows below them."""
    commands: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        else:
            commands[-1][1].append(line)
    return commands


def pattern(lines: list[str]) -> re.Pattern[str]:
    """Return what finds these lines in their order; `…` stands for anything within a line."""
    found = [".*".join(map(re.escape, line.split("…"))) for line in lines]
    return re.compile(r"[\s\S]*".join(f"^{line}$" for line in found), re.MULTILINE)


@pytest.fixture
def reader(fresh_project: FreshProject) -> Iterator[Reader]:
    reader = Reader(fresh_project)
    yield reader
    reader.leave()


@pytest.mark.processes
@pytest.mark.parametrize(
    "tutorial",
    [
        pytest.param(TUTORIALS[0], id="tutorial"),
        pytest.param(TUTORIALS[1], id="tutorial-flow", marks=pytest.mark.nightly),
    ],
)
def test_a_tutorial_works_as_it_is_written(reader: Reader, tutorial: Document) -> None:
    for block in tutorial.blocks():
        if block.language == "python":
            reader.write(block)
        elif block.language == "console":
            for command, shown in typed(block):
                output = reader.type(command)
                assert pattern(shown).search(output), f"$ {command}\n{output}"
                is_test = " test " in command
                assert not (is_test and "Traceback" in output), f"tests that pass print\n{output}"
        else:
            assert pattern(block.text.splitlines()).search(reader.bank_says())
