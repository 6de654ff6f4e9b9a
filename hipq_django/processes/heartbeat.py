"""The heartbeat: what tells the other workers that this one lives, and it how long it has."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from django.db import Error, connections

from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import in_one_line
from hipq_django.models import Worker
from hipq_django.processes.backoff import BackOff
from hipq_django.processes.own_connections import adopt

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("hipq_django")

GAP_BEATS = 2
"""Beats that are farther apart than so many leave a gap."""


class Heartbeat:
    """Renews the worker's row from a thread of its own, so that no handler can delay it.

    `given_up` is called when it finds that the others gave this worker up: it claims no more.
    """

    def __init__(
        self, worker: Worker, in_hand: Callable[[], int], given_up: Callable[[], None]
    ) -> None:
        self.worker = worker
        self._in_hand = in_hand
        self._given_up = given_up
        self._stop = threading.Event()
        self._has_row = True
        self.last = self.unbroken_since = steady()
        """When the last beat went through, and the first one since which there is no gap."""

    def open(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="hipq-heartbeat", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def is_fresh(self) -> bool:
        """Return whether the others must still think that this worker lives."""
        return self._has_row and steady() - self.last < self._silence

    def is_sure(self) -> bool:
        """Return whether the beats have gone through for as long as others may be silent.

        Who could not write for a while does not know whether the others could.
        """
        moment = steady()
        is_beating = moment - self.last <= GAP_BEATS * self.worker.heartbeat_seconds
        return self._has_row and is_beating and moment - self.unbroken_since >= self._silence

    def beat(self) -> bool:
        """Write one beat; return False where the others gave this worker up already."""
        using, began = self.worker.using, steady()
        try:
            clock.measure(using)
            row = Worker.objects.using(using).filter(pk=self.worker.pk, state__in=Worker.LIVE)
            moment = clock.in_statement(using)
            self._has_row = bool(row.update(heartbeat_time=moment, executing=self._in_hand()))
        except Error:
            self.unbroken_since = float("inf")
            raise
        if self._has_row:
            self._went_through(began)
        return self._has_row

    def note_given_up(self) -> None:
        """Learn it from who found out first: there is no fresh beat until another is written."""
        self._has_row = False

    def begin_anew(self, worker: Worker) -> None:
        """Go on for the row under which the process has registered again."""
        self.unbroken_since = float("inf")
        self.worker = worker
        self.beat()

    def _went_through(self, began: float) -> None:
        gap = began - self.last > GAP_BEATS * self.worker.heartbeat_seconds
        if gap or self.unbroken_since > began:
            self.unbroken_since = began
        self.last = began

    @property
    def _silence(self) -> float:
        return self.worker.silence.total_seconds()

    def _run(self) -> None:
        adopt(self.worker.using)
        back_off = BackOff()
        pause = self.worker.heartbeat_seconds
        while not self._stop.wait(pause):
            pause = self.worker.heartbeat_seconds
            try:
                if not self.beat():
                    self._given_up()
                back_off.reset()
            except Error as error:
                logger.warning(
                    "worker=%s heartbeat failed: %s", self.worker.name, in_one_line(error)
                )
                connections[self.worker.using].close()
                pause = min(pause, back_off.next_seconds())
        connections.close_all()
