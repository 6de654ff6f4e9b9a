"""Restarts the worker when the project's code changes; for development."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.utils.autoreload import StatReloader

from hipq_django import events

LOOK_SECONDS = 1.0


class Reloader:
    """Watches the files of all imported modules from a thread; `stop` lets the worker drain."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._files = StatReloader()
        self._times: dict[Path, float] = {}
        self.changed: Path | None = None

    def open(self) -> None:
        """Note the state of the files before their code runs a job; watch them from then on."""
        self._look()
        threading.Thread(target=self._run, name="hipq-reloader", daemon=True).start()

    def restart(self) -> None:
        """Replace this process by a new one with the same arguments and the same process id."""
        events.info("reload", changed=self.changed)
        logging.shutdown()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own command line

    def _run(self) -> None:
        while not (changed := self._look()):
            time.sleep(LOOK_SECONDS)
        self.changed = changed
        self._stop()

    def _look(self) -> Path | None:
        now = dict(self._files.snapshot_files())
        times, self._times = self._times, {**self._times, **now}
        return next((path for path in now if times.get(path, now[path]) != now[path]), None)
