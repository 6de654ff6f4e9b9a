"""Writes large batches of results while the scheduler claims the next jobs."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from django.db import connections

from hipq_django.processes.backoff import BackOff
from hipq_django.processes.own_connections import adopt

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.scheduler.batch import BatchScheduler

logger = logging.getLogger("hipq_django")


class ResultWriter:
    """A thread with a connection of its own, for databases that take several writers at a time.

    It is idle unless results come in by the hundreds. What it cannot write goes back, and the
    scheduler, which tries next, says what is wrong. `wake` is called when it has written.
    """

    def __init__(self, scheduler: BatchScheduler, wake: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self._wake = wake
        self._asked = threading.Event()
        self._stop = threading.Event()
        self._is_well = True
        self._thread = threading.Thread(target=self._run, name="hipq-writer", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self) -> None:
        """Let it look for results; they are its own while it is well."""
        if self._is_well:
            self._batch.hand_to_writer()
        self._asked.set()

    def close(self) -> None:
        """Stop it after what it is writing; the rest is for the scheduler."""
        self._stop.set()
        self._asked.set()
        self._thread.join()
        self._batch.take_from_writer()

    def _run(self) -> None:
        adopt(self._scheduler.using)
        back_off = BackOff()
        while self._asked.wait() and not self._stop.is_set():
            self._asked.clear()
            try:
                while self._scheduler.write_leased(self._batch.lease_to_writer()):
                    self._wake()
                back_off.reset()
                self._is_well = True
            except Exception:
                self._is_well = False
                logger.debug("results could not be written", exc_info=True)
                connections[self._scheduler.using].close()
                self._stop.wait(back_off.next_seconds())
            self._wake()
        connections.close_all()
