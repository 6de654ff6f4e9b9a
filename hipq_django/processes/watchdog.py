"""Watches over a process from a thread that waits for nothing but the clock."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from hipq_django.database.clock import steady
from hipq_django.processes.own_connections import shut_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.processes.heartbeat import Heartbeat

logger = logging.getLogger("hipq_django")

LOOKS = 10
"""How often it looks before it acts."""

MIN_SECONDS = 5.0
"""However quick the beats are: a busy machine may take long for a statement."""

START_SECONDS = 30.0
"""How long a start may take, until the first beat."""


PASS_SILENCES = 10
"""How many silences a pass may last in which the heart goes on: it may do much."""


class _Sign:
    """A sign of life that stands still where a thread waits for something that never comes."""

    def __init__(self, read: Callable[[], object], looks: int) -> None:
        self._read = read
        self._looks = looks
        self._last: object = None
        self._same = 0

    def is_missing(self) -> bool:
        """Look once more; return whether it has stood still for long, each time anew.

        Looks are counted, not seconds: while the process sleeps, nothing can be seen.
        """
        before, self._last = self._last, self._read()
        self._same = self._same + 1 if self._last == before else 0
        if self._same < self._looks:
            return False
        self._same = 0
        return True


class Watchdog:
    """Wakes the process's threads that wait for a database which does not answer.

    `passes` is what the scheduler's passes change, also while it waits for nothing but work.
    """

    def __init__(
        self, name: str, silence_seconds: float, passes: Callable[[], object] = object
    ) -> None:
        self._name = name
        self._patience = max(silence_seconds, MIN_SECONDS)
        self._heartbeat: Heartbeat | None = None
        self._began = steady()
        self._heart = _Sign(self._last_beat, LOOKS)
        self._passes = _Sign(passes, LOOKS * PASS_SILENCES)
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
        while not self._stop.wait(self._patience / LOOKS):
            silent = self._heart.is_missing()
            is_starting = not self._heartbeat and steady() - self._began < START_SECONDS
            if (silent and not is_starting) or self._passes.is_missing():
                self._wake_all(steady() - self._last_beat())

    def _wake_all(self, seconds: float) -> None:
        if closed := shut_all():
            logger.error(
                "worker=%s event=database_silent last_beat_seconds=%.0f closed=%s: a statement has "
                "no answer; the connections that wait are closed, new ones are opened",
                self._name, seconds, closed,
            )  # fmt: skip
