"""Interrupts code of the project that a pass waits for: throttlers, receivers of signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from types import FrameType
from typing import Any

from hipq_django.domain import bounded_calls

SIGNAL = signal.SIGURG
"""It wakes a thread from whatever it waits for; without a handler it is ignored."""

PATIENCE_SECONDS = 5.0
"""How long a command waits for a throttler."""

INTERVAL_SECONDS = 0.1


class Interrupter:
    """Interrupts bounded calls of the main thread that last longer than so many seconds.

    It is told to look at intervals, and counts its looks: between the first one at a call and the
    last one these seconds have passed.
    """

    def __init__(self, seconds: float, interval: float) -> None:
        self._seconds = seconds
        self._looks = 1 + ceil(round(seconds / interval, 6))  # a third of a beat is not exact
        self._thread = 0
        self._before: Any = None

    def open(self) -> None:
        """Begin, if this is the main thread: no other one can be interrupted."""
        if threading.current_thread() is threading.main_thread():
            self._thread = threading.get_ident()
            self._before = signal.signal(SIGNAL, self._receive)

    def close(self) -> None:
        """Let the signal do again what it did before."""
        if self._thread:
            signal.signal(SIGNAL, self._before)
            self._thread = 0

    def look(self) -> None:
        """Interrupt the call that lasts too long, if there is one; from another thread."""
        if self._thread and bounded_calls.look(self._thread) >= self._looks:
            signal.pthread_kill(self._thread, SIGNAL)

    def _receive(self, _number: int, frame: FrameType | None) -> None:
        bounded_calls.interrupt(frame, self._looks, self._seconds)


@contextmanager
def interrupting_hangs() -> Iterator[None]:
    """Interrupt bounded calls of this block that last too long, in a process without heartbeats."""
    interrupter, ended = Interrupter(PATIENCE_SECONDS, INTERVAL_SECONDS), threading.Event()

    def look() -> None:
        while not ended.wait(INTERVAL_SECONDS):
            interrupter.look()

    looking = threading.Thread(target=look, name="hipq-interrupter", daemon=True)
    interrupter.open()
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
        interrupter.close()
