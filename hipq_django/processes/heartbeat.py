"""The heartbeat: what tells the other workers that this one lives."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from django.db import Error, connections

from hipq_django import clock
from hipq_django.database import in_one_line
from hipq_django.models import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("hipq_django")


class Heartbeat:
    """Renews the worker's row from a thread of its own, so that no handler can delay it."""

    def __init__(self, worker: Worker, in_hand: Callable[[], int]) -> None:
        self.worker = worker
        self._in_hand = in_hand
        self._stop = threading.Event()
        self._last = time.monotonic()

    def open(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="hipq-heartbeat", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def is_fresh(self) -> bool:
        """Return whether the others must still think that this worker lives."""
        return time.monotonic() - self._last < self.worker.silence.total_seconds()

    def beat(self) -> bool:
        """Write one beat; return False where the others gave this worker up already."""
        using = self.worker.using
        began = time.monotonic()
        clock.measure(using)
        known = Worker.objects.using(using).filter(pk=self.worker.pk, state__in=Worker.LIVE)
        if not known.update(heartbeat_time=clock.now(using), executing=self._in_hand()):
            return False
        self._last = began
        return True

    def _run(self) -> None:
        while not self._stop.wait(self.worker.heartbeat_seconds):
            try:
                self.beat()
            except Error as error:
                logger.warning(
                    "worker=%s heartbeat failed: %s", self.worker.name, in_one_line(error)
                )
                connections[self.worker.using].close()
        connections.close_all()
