"""Signs of life: this process's heartbeat, who watches over it, and what it sees of the others'."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from django.db import Error, connections

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import in_one_line
from hipq_django.maintenance import recovery
from hipq_django.models import Worker
from hipq_django.processes.connections import MIN_SECONDS, shut_all
from hipq_django.processes.outage import BackOff
from hipq_django.processes.own_threads import OwnThread

GAP_BEATS = 2
"""Beats that are farther apart than so many leave a gap."""


class Heartbeat(OwnThread):
    """Renews the worker's row from a thread of its own, so that no handler can delay it.

    `given_up` is called when it finds that the others gave this worker up: it claims no more.
    """

    def __init__(
        self, worker: Worker, in_hand: Callable[[], int], given_up: Callable[[], None]
    ) -> None:
        super().__init__("heartbeat", worker.using)
        self.worker = worker
        self._in_hand = in_hand
        self._given_up = given_up
        self._has_row = True
        self.last = self.unbroken_since = steady()
        """When the last beat went through, and the first one since which there is no gap."""

    def is_fresh(self) -> bool:
        """Return whether the others must still think that this worker lives."""
        return self._has_row and steady() - self.last < self.worker.silence.total_seconds()

    def is_sure(self) -> bool:
        """Return whether the beats have gone through for as long as others may be silent.

        Who could not write for a while does not know whether the others could.
        """
        moment = steady()
        silence = self.worker.silence.total_seconds()
        is_beating = moment - self.last <= GAP_BEATS * self.worker.heartbeat_seconds
        return self._has_row and is_beating and moment - self.unbroken_since >= silence

    def goes_through(self) -> bool:
        """Return whether the last beat could be written."""
        return self.unbroken_since < float("inf")

    def beat(self) -> bool:
        """Write one beat; return False where the others gave this worker up already."""
        began = steady()
        try:
            clock.measure(self.using)
            moment = clock.in_statement(self.using)
            live = self.worker.live_row()
            self._has_row = bool(live.update(heartbeat_time=moment, executing=self._in_hand()))
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

    def _run(self) -> None:
        back_off = BackOff()
        pause = self.worker.heartbeat_seconds
        while not self._stop.wait(pause):
            pause = self.worker.heartbeat_seconds
            try:
                if not self.beat():
                    self._given_up()
                back_off.reset()
            except Error as error:
                events.warning("heartbeat_failed", in_one_line(error), worker=self.worker.name)
                connections[self.using].close()
                pause = min(pause, back_off.next_seconds())


# Watching over this process

LOOKS = 10
"""How often it looks before it acts."""

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
        self.heartbeat: Heartbeat | None = None
        """The heart to listen to; until there is one, it is the start that takes too long."""
        self._began = steady()
        self._heart = _Sign(self._last_beat, LOOKS)
        self._passes = _Sign(passes, LOOKS * PASS_SILENCES)
        self._stop = threading.Event()

    def open(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="hipq-watchdog", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _last_beat(self) -> float:
        return self.heartbeat.last if self.heartbeat else self._began

    def _run(self) -> None:
        while not self._stop.wait(self._patience / LOOKS):
            silent = self._heart.is_missing()
            is_starting = not self.heartbeat and steady() - self._began < START_SECONDS
            if (silent and not is_starting) or self._passes.is_missing():
                self._wake_all(steady() - self._last_beat())

    def _wake_all(self, seconds: float) -> None:
        if closed := shut_all():
            events.error(
                "database_silent",
                "a statement has no answer; the connections that wait are closed, new ones are "
                "opened",
                worker=self._name,
                last_beat_seconds=round(seconds),
                closed=closed,
            )


# Watching the others

LOOKS_IN_A_BEAT = 2
"""How often a worker looks at the others' rows."""


class Witness:
    """Gives up workers and overdue jobs for a worker that is sure of itself.

    Who counts as silent has not beaten while this worker watched, by a clock that no step moves,
    and while its own beats went through. So an outage, a sleeping machine or a step of a clock,
    the server's too, is nobody's death; and whoever comes back has three beats to write what it
    has done.
    """

    def __init__(self, config: InstanceSettings, heartbeat: Heartbeat) -> None:
        self._config = config
        self._heartbeat = heartbeat
        self._seen: dict[tuple[int, datetime], float] = {}
        """Since when the last heartbeat of each worker has been its last."""
        self._unbroken_since = 0.0
        self._suspects = False
        self._has_overdue = False

    @property
    def waits(self) -> bool:
        """Whether there is something to give up once this worker is sure."""
        return self._suspects or self._has_overdue

    def recover_lost(self) -> int:
        """Do what `recovery.recover_lost` does with the workers seen to be silent."""
        return recovery.recover_lost(self._config, self._silent)

    def time_out_overdue(self) -> int:
        """Do what `recovery.time_out_overdue` does, if this worker is sure."""
        if self._heartbeat.is_sure():
            self._has_overdue = False
            return recovery.time_out_overdue(self._config)
        self._has_overdue = recovery.has_overdue(self._config)
        return 0

    def _silent(self, workers: Sequence[Worker]) -> list[Worker]:
        if self._heartbeat.unbroken_since != self._unbroken_since:
            self._unbroken_since = self._heartbeat.unbroken_since
            self._seen = {}
        moment = steady()
        self._seen = {beat: self._seen.get(beat, moment) for beat in map(_last_beat, workers)}
        gone = [worker for worker in workers if self._is_gone(worker)]
        self._suspects = any(map(self._is_suspect, set(workers).difference(gone)))
        return gone

    def _is_gone(self, worker: Worker) -> bool:
        watched = steady() - self._seen[_last_beat(worker)]
        return self._heartbeat.is_sure() and watched >= worker.silence.total_seconds()

    def _is_suspect(self, worker: Worker) -> bool:
        return worker.is_silent(clock.now(worker.using)) and worker.jobs.exists()


def _last_beat(worker: Worker) -> tuple[int, datetime]:
    return worker.pk, worker.heartbeat_time
