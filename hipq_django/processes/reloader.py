"""Starts the worker anew when the project's code changes; for development."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from django.utils.autoreload import iter_all_python_module_files

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("hipq_django")

LOOK_SECONDS = 1.0


class Reloader:
    """Watches the files of all imported modules from a thread; `stop` lets the worker drain."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._times: dict[Path, float] = {}
        self.changed: Path | None = None

    def open(self) -> None:
        """Note how the files are now, before any of their code runs a job; watch from then on."""
        self.changed = self._look()
        threading.Thread(target=self._run, name="hipq-reloader", daemon=True).start()

    def restart(self) -> None:
        """Replace this process by a new one with the same arguments and the same id."""
        logger.info("event=reload file=%s", self.changed)
        logging.shutdown()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606

    def _run(self) -> None:
        pause = threading.Event()
        while self.changed is None:
            self.changed = self._look()
            pause.wait(LOOK_SECONDS)
        self._stop()

    def _look(self) -> Path | None:
        for path in iter_all_python_module_files():
            try:
                modified = path.stat().st_mtime
            except OSError:
                continue  # an editor is just replacing it
            if self._times.setdefault(path, modified) != modified:
                return path
        return None
