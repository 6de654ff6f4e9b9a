"""Commands of Django in processes that are forked from one that has loaded Django.

A new interpreter takes 1.5 s of a processor until it has; a fork takes a quarter of that.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connections

from tests import settings as module_of_settings

READ_EARLY = {"DJANGO_SETTINGS_MODULE", "HIPQ_TEST_WITH_SCHEDULE"}
"""Environment variables that are read while Django is loaded: too early for a fork."""

CONNECT_MIN = "hipq_django.processes.connections.MIN_SECONDS"
END = "hipq_django.processes.stop_signals.END_SECONDS"
HEARTBEAT_MIN = "hipq_django.processes.watchdog.MIN_SECONDS"
LAST_RESORT = "hipq_django.processes.stop_signals.LAST_RESORT_SECONDS"
PASS = "hipq_django.processes.watchdog.PASS_SECONDS"
RESTART = "hipq_django.processes.supervisor.RESTART_SECONDS"
"""Constants that tests shorten."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])

if multiprocessing.current_process().name == "MainProcess" and "pytest" not in sys.modules:
    django.setup()  # this is the process that is forked
    gc.freeze()  # else the first collection in a fork copies all pages with objects


class ForkedProcess:
    """A command of Django, with the methods of `subprocess.Popen`.

    Some variables of its environment are for the tests: HIPQ_TEST_NOHUP, if it is there, starts it
    as `nohup` does, and HIPQ_TEST_CONSTANTS has other values of constants, by their paths.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        ready, is_ready = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run, args=(command, dict(environment), log, is_ready), daemon=False
        )
        self._process.start()
        is_ready.close()
        ready.recv()  # it leads a process group by now
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """What it ended with, minus the number of a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return what it ended with, None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(
    command: Sequence[str], environment: Mapping[str, str], log: Path, is_ready: Connection
) -> None:
    os.setsid()
    threading.Thread(target=_end_with_the_tests, name="hipq-tests", daemon=True).start()
    signal.signal(
        signal.SIGHUP, signal.SIG_IGN if "HIPQ_TEST_NOHUP" in environment else signal.SIG_DFL
    )
    with log.open("ab") as file:
        for standard in (sys.stdout, sys.stderr):
            standard.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    is_ready.send(None)
    is_ready.close()
    os.environ.clear()
    os.environ.update(environment)
    _read_settings_anew()
    for path, value in json.loads(environment.get("HIPQ_TEST_CONSTANTS", "{}")).items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    execute_from_command_line(["django", *command])


def _end_with_the_tests() -> None:
    """End with all children when the tests' process ends, also if that is killed."""
    tests = multiprocessing.parent_process()
    assert tests
    tests.join()
    os.killpg(0, signal.SIGKILL)


def _read_settings_anew() -> None:
    importlib.reload(module_of_settings)
    for name in filter(str.isupper, dir(module_of_settings)):
        setattr(settings, name, getattr(module_of_settings, name))
    del connections.settings
    connections.__init__()  # type: ignore[misc]  # as Django made it
