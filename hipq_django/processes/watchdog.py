"""Watches over the threads of a process that may wait for something that never comes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from traceback import format_stack
from typing import Any

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.processes.connections import MIN_SECONDS, shut_all
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.own_threads import log_failure
from hipq_django.processes.stop_signals import ENDED_ITSELF, leave, log_apart

PASS_SECONDS = 60.0
"""How long a step of a pass, or a duty, may take while the heart beats on."""

START_SECONDS = 30.0
"""How long a start may take, until the first beat."""

LOOKS = 9
"""How often it looks within the shortest time that it bounds."""


class _Sign:
    """A sign of life that stops changing if a thread waits for something that never comes."""

    def __init__(self, read: Callable[[], object], looks: int) -> None:
        self._read = read
        self._looks = looks
        self._last: object = None
        self._same = 0

    @property
    def has_just_changed(self) -> bool:
        """Whether it is far from missing."""
        return 2 * self._same < self._looks

    def is_missing(self) -> bool:
        """Look once more; return True after each so many looks without a change.

        Looks are counted, not seconds: while the process sleeps, nothing can be seen.
        """
        before, self._last = self._last, self._read()
        self._same = self._same + 1 if self._last == before else 0
        if self._same < self._looks:
            return False
        self._same = 0
        return True


class Watchdog:
    """Ends a process whose pass hangs, and wakes threads that wait for a silent database.

    `passes` returns a value that changes with each pass, even while the process is idle. The
    process ends with a line in the log, and with an exit code by which its supervisor starts
    another; others take its jobs over.
    """

    def __init__(self, name: str, silence_seconds: float, passes: Callable[[], object]) -> None:
        self._name = name
        patience = max(silence_seconds, MIN_SECONDS)
        self._interval = min(patience, PASS_SECONDS) / LOOKS
        self.heartbeat: Heartbeat | None = None
        """The heartbeat to watch; until there is one, the start is what takes too long."""
        self._began = steady()
        self.doing: Callable[[], Mapping[str, Any]] = dict
        """The step of a pass, or the duty, that is being done, as fields of the log."""
        self._heart = _Sign(self._last_beat, round(patience / self._interval))
        self._passes = _Sign(
            lambda: (passes(), dict(self.doing())), round(PASS_SECONDS / self._interval)
        )
        self._watched = 0
        self._stop = threading.Event()

    def open(self) -> None:
        """Start the thread, which watches over this one."""
        self._watched = threading.get_ident()
        threading.Thread(target=self._run, name="hipq-watchdog", daemon=True).start()

    def close(self) -> None:
        """Let the thread end."""
        self._stop.set()

    def _last_beat(self) -> float:
        return self.heartbeat.last if self.heartbeat else self._began

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._look()
            except Exception as error:
                log_failure("watchdog_failed", error, worker=self._name)

    def _look(self) -> None:
        is_silent, hangs = self._heart.is_missing(), self._passes.is_missing()
        is_starting = not self.heartbeat and steady() - self._began < START_SECONDS
        if is_silent and not is_starting:
            self._wake(shut_all())
        elif hangs and self._heart.has_just_changed:  # else it may be the database
            self._end()

    def _end(self) -> None:
        """Name the place at which the pass hangs, and end the process."""
        stack = format_stack(sys._current_frames().get(self._watched))
        log_apart(
            events.error,
            "pass_hangs",
            f"nothing has moved for {PASS_SECONDS:g} s, so it ends; its supervisor is to start "
            "another",
            worker=self._name,
            **self.doing(),
            traceback="".join(stack),
        )
        leave(ENDED_ITSELF)

    def _wake(self, closed: int) -> None:
        if closed:
            events.error(
                "database_silent",
                "a statement got no reply; the waiting connections are closed and new ones are "
                "opened",
                worker=self._name,
                last_beat_seconds=round(steady() - self._last_beat()),
                closed=closed,
            )
