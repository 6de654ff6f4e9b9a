"""Signs of life: this process's heartbeat, and those of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import connections

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.isolation import Isolation
from hipq_django.maintenance import recovery
from hipq_django.models import Worker
from hipq_django.processes.connections import bound_waits, renew_broken
from hipq_django.processes.outage import BackOff
from hipq_django.processes.own_threads import OwnThread, log_failure

GAP_BEATS = 2
"""If two beats are farther apart than this many intervals, there is a gap."""


class Heartbeat(OwnThread):
    """Renews the worker's row from its own thread, so that no handler can delay it.

    Each beat also writes what `tells` returns: values of the row. `on_lost` is called when it finds
    that others have declared this worker lost: it claims no more.
    """

    def __init__(
        self,
        worker: Worker,
        tells: Callable[[], Mapping[str, Any]],
        on_lost: Callable[[], None],
    ) -> None:
        super().__init__("heartbeat", worker.using)
        self.worker = worker
        self._tells = tells
        self._on_lost = on_lost
        self._has_row = True
        self.last = self.unbroken_since = self._began = steady()
        """When the last beat went through, and the first one since which there is no gap."""

    def is_fresh(self) -> bool:
        """Return whether the others must still consider this worker live."""
        return self._has_row and steady() - self.last < self.worker.silence.total_seconds()

    def is_sure(self) -> bool:
        """Return whether the beats have gone through for as long as others may be silent.

        After an interruption of its own, a worker cannot tell whether the others were silent.
        """
        silence = self.worker.silence.total_seconds()
        return self._is_beating() and steady() - self.unbroken_since >= silence

    def is_unbroken(self) -> bool:
        """Return whether all beats have gone through since the start, however short that was."""
        return self._is_beating() and self.unbroken_since == self._began

    def _is_beating(self) -> bool:
        gap = GAP_BEATS * self.worker.heartbeat_seconds
        return self._has_row and steady() - self.last <= gap

    def beat(self) -> bool:
        """Write one beat; return False if the others have declared this worker lost."""
        began = steady()
        try:
            renew_broken(self.using)
            clock.measure(self.using)
            moment = clock.in_statement(self.using)
            live = self.worker.live_row()
            self._has_row = bool(live.update(heartbeat_time=moment, **self._tells()))
        except Exception:
            self.unbroken_since = float("inf")
            raise
        if self._has_row:
            self._went_through(began)
        return self._has_row

    def note_lost(self) -> None:
        """Note that others found it out first: no beat is fresh until another is written."""
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
        bound_waits(self.using)
        back_off = BackOff()
        pause = self.worker.heartbeat_seconds
        while not self._stop.wait(pause):
            try:
                if not self.beat():
                    self._on_lost()
                back_off.reset()
                pause = self.worker.heartbeat_seconds
            except Exception as error:
                log_failure("heartbeat_failed", error, worker=self.worker.name)
                connections[self.using].close()
                pause = min(self.worker.heartbeat_seconds, back_off.next_seconds())


# Watching the others

LOOKS_IN_A_BEAT = 2
"""How often a worker looks at the others' rows."""


class Witness:
    """Declares workers lost and attempts timed out, if its own worker is sound.

    A worker counts as silent if it has not beaten while this worker watched, by a monotonic clock,
    and while its own beats went through. So an outage, a sleeping machine or a step of a clock,
    even the server's, makes no worker lost; and a worker that comes back has three beats to write
    its results.
    """

    def __init__(self, config: InstanceSettings, heartbeat: Heartbeat) -> None:
        self._config = config
        self._heartbeat = heartbeat
        self._seen: dict[tuple[int, datetime], float] = {}
        """Since when each worker has had its present last heartbeat."""
        self._unbroken_since = 0.0
        self._suspects = False
        self._has_overdue = False
        self.not_recovered = Isolation[int]("recover_lost")
        self.not_timed_out = Isolation[int]("time_out_overdue")

    @property
    def waits(self) -> bool:
        """Whether something is to be declared lost once this worker is sure."""
        return self._suspects or self._has_overdue

    def recover_lost(self) -> int:
        """Do what `recovery.recover_lost` does with the workers seen to be silent."""
        return recovery.recover_lost(self._config, self._silent, self.not_recovered)

    def time_out_overdue(self) -> int:
        """Do what `recovery.time_out_overdue` does, if this worker is sure.

        Before, in its first beats, do it only with attempts of which nobody else may still write a
        result.
        """
        is_sure, moved = self._heartbeat.is_sure(), 0
        if is_sure or self._heartbeat.is_unbroken():
            judge = None if is_sure else self._heartbeat.worker
            moved = recovery.time_out_overdue(self._config, self.not_timed_out, judge)
        self._has_overdue = not is_sure and recovery.has_overdue(self._config)
        return moved

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
