"""Several worker processes under one: starts them, replaces those that die, passes signals on."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from hipq_django.processes.child import run_child

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from hipq_django.processes.options import WorkerOptions

logger = logging.getLogger("hipq_django")

RESTART_SECONDS = 1.0
"""A process that dies again at once is not replaced more often than this."""

_CONTEXT = multiprocessing.get_context("spawn")


class Supervisor:
    """Keeps `processes` worker processes running until it is stopped."""

    def __init__(self, options: WorkerOptions, processes: int) -> None:
        self.options = replace(options, parent=os.getpid())
        self._processes = processes
        self._children: list[SpawnProcess] = []
        self._stops = 0

    def run(self) -> None:
        """Run until every child has ended."""
        self._children = [self._start() for _ in range(self._processes)]
        while self._children:
            wait([child.sentinel for child in self._children], timeout=RESTART_SECONDS)
            self._replace_dead()

    def stop(self) -> None:
        """Pass the wish to stop on to the children; each counts for itself."""
        self._stops += 1
        for child in self._children:
            if child.is_alive() and child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)

    def _replace_dead(self) -> None:
        dead = [child for child in self._children if not child.is_alive()]
        self._children = [child for child in self._children if child not in dead]
        for child in dead:
            if child.exitcode == 0 or self._stops:
                continue
            logger.error("process=%s event=died exit_code=%s", child.pid, child.exitcode)
            time.sleep(RESTART_SECONDS)
            if not self._stops:
                self._children.append(self._start())

    def _start(self) -> SpawnProcess:
        child = _CONTEXT.Process(target=run_child, args=(self.options,))
        child.start()
        return child
