"""Watches over a process from a thread that waits for nothing but the clock."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from hipq_django.processes.own_connections import shut_all
from hipq_django.steady import steady

if TYPE_CHECKING:
    from hipq_django.processes.heartbeat import Heartbeat

logger = logging.getLogger("hipq_django")

LOOKS = 10
"""How often it looks before it acts."""

MIN_SECONDS = 5.0
"""However quick the beats are: a busy machine may take long for a statement."""

START_SECONDS = 30.0
"""How long a start may take, until the first beat."""


class Watchdog:
    """Wakes the process's threads that wait for a database which does not answer."""

    def __init__(self, name: str, silence_seconds: float) -> None:
        self._name = name
        self._patience = max(silence_seconds, MIN_SECONDS)
        self._heartbeat: Heartbeat | None = None
        self._began = steady()
        self._stop = threading.Event()

    def follow(self, heartbeat: Heartbeat) -> None:
        """Listen to this heart; until there is one, it is the start that takes too long."""
        self._heartbeat = heartbeat

    def open(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="hipq-watchdog", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _last_beat(self) -> float:
        return self._heartbeat.last if self._heartbeat else self._began

    def _run(self) -> None:
        # Looks are counted, not seconds: while the process sleeps, nothing can be heard.
        beat, looks = self._last_beat(), 0
        while not self._stop.wait(self._patience / LOOKS):
            before, beat = beat, self._last_beat()
            looks = looks + 1 if beat == before else 0
            if looks >= LOOKS and (self._heartbeat or steady() - beat >= START_SECONDS):
                looks = 0
                self._wake_all(steady() - beat)

    def _wake_all(self, seconds: float) -> None:
        if closed := shut_all():
            logger.error(
                "worker=%s event=database_silent seconds=%.0f closed=%s: no heartbeat could be "
                "written; the connections that wait are closed, new ones are opened",
                self._name, seconds, closed,
            )  # fmt: skip
