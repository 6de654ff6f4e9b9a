"""Commands of fresh projects, in processes that are forked from one that has loaded Django.

An interpreter takes half a second of a processor until it has loaded Django and the package; a
fork takes a twentieth, and then reads the settings of its project.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connections
from django.utils.functional import empty

from tests.conftest import ROOT

APPS = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
MODULES = (
    *(f"django.core.management.commands.{name}" for name in ("makemigrations", "shell", "test")),
    *("django.core.handlers.wsgi", "django.test.runner", "hipq_django.urls"),
    *(f"hipq_django.management.commands.hipq_{name}" for name in ("status", "worker")),
)
"""What the commands import besides the apps."""


class Forks:
    """The process that is forked, and the way to ask it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `manage.py` in a project; return how it ends, and what it prints."""
        with TemporaryDirectory() as temporary:
            printed = Path(temporary, "printed")
            asked = [list(arguments), str(folder), dict(environment), str(printed), int(seconds)]
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write(f"{json.dumps(asked)}\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, printed.read_text())


@cache
def forks() -> Forks:
    """Return the process of this run of pytest; it ends when this one does."""
    return Forks()


def serve() -> None:
    """Fork for each line of the standard input, and say how the fork has ended."""
    settings.configure(
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in APPS), "hipq_django"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()
    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()  # a fork looks at none of these objects again, not even when it ends
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            manage(*json.loads(line))
            return
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def manage(
    arguments: list[str], folder: str, environment: dict[str, str], printed: str, seconds: int
) -> None:
    """Be `python manage.py` in a project."""
    signal.alarm(seconds)
    output = os.open(printed, os.O_WRONLY | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, its in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(standard, its)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment | {"DJANGO_SETTINGS_MODULE": "mysite.settings"})
    sys.path.insert(0, folder)
    lazy: Any = settings
    lazy._wrapped = empty
    vars(connections).pop("settings", None)
    connections.__init__()  # type: ignore[misc]  # as Django made it
    apps.set_installed_apps(settings.INSTALLED_APPS)
    execute_from_command_line(["manage.py", *arguments])


if __name__ == "__main__":
    serve()
