"""Starts worker processes, replaces those that die, passes signals on."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from hipq_django.processes.child import ENDED, run_child
from hipq_django.processes.undertaker import bury

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from hipq_django.processes.options import WorkerOptions

logger = logging.getLogger("hipq_django")

RESTART_SECONDS = 1.0
"""A process that dies again at once is not replaced more often than this."""

BURIAL_SECONDS = 2.0
"""How long the end waits for what is to be written of a process that died."""

_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class _Child:
    """A worker process, and what it has said."""

    process: SpawnProcess
    says: Connection
    rows: list[int] = field(default_factory=list)
    """The ids of the rows of workers under which it has registered."""
    has_ended: bool = False
    """Whether it said that it ends, told to or idle. A handler can end it with any exit code."""

    def listen(self) -> None:
        """Hear what it has said since."""
        try:
            while self.says.poll():
                word = self.says.recv()
                if word == ENDED:
                    self.has_ended = True
                else:
                    self.rows.append(word)
        except (EOFError, OSError):
            return  # it has said all


class Supervisor:
    """Keeps `processes` worker processes running until it is stopped."""

    def __init__(self, options: WorkerOptions, processes: int) -> None:
        self.options = replace(options, parent=os.getpid())
        self._processes = processes
        self._children: list[_Child] = []
        self._burials: list[threading.Thread] = []
        self._stops = 0

    def run(self) -> None:
        """Run until every child has ended."""
        self._children = [self._start() for _ in range(self._processes)]
        while self._children:
            wait([child.process.sentinel for child in self._children], timeout=RESTART_SECONDS)
            self._replace_dead()
        for burial in self._burials:
            burial.join(BURIAL_SECONDS)

    def stop(self) -> None:
        """Pass the wish to stop on to the children; each counts for itself."""
        self._stops += 1
        for child in self._children:
            if child.process.is_alive() and child.process.pid is not None:
                os.kill(child.process.pid, signal.SIGTERM)

    def _replace_dead(self) -> None:
        for child in list(self._children):
            is_alive = child.process.is_alive()
            child.listen()
            if is_alive:
                continue
            self._children.remove(child)
            self._burials = [burial for burial in self._burials if burial.is_alive()]
            if not child.has_ended:
                self._mourn(child)
            if not (child.has_ended or self._stops):
                time.sleep(RESTART_SECONDS)
                if not self._stops:
                    self._children.append(self._start())
            child.says.close()

    def _mourn(self, child: _Child) -> None:
        """Say that it died, and let others have its jobs at once."""
        logger.error(
            "process=%s event=died exit_code=%s: %s",
            child.process.pid, child.process.exitcode,
            "it was to stop" if self._stops else "another one takes its place",
        )  # fmt: skip
        # In a thread of its own: the database may be what is wrong.
        burial = threading.Thread(
            target=bury, args=[self.options.instance, list(child.rows)], daemon=True
        )
        burial.start()
        self._burials.append(burial)

    def _start(self) -> _Child:
        says, told = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=run_child, args=(self.options, told))
        process.start()
        told.close()
        return _Child(process, says)
