"""What a worker has itself seen of the others' hearts: the others must not die of a wrong clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.maintenance import recovery

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hipq_django.conf.instances import InstanceSettings
    from hipq_django.models import Worker
    from hipq_django.processes.heartbeat import Heartbeat


LOOKS_IN_A_BEAT = 2
"""How often a worker looks at the others' rows."""


class _Seen(NamedTuple):
    """A heartbeat of another worker, and since when it has been its last."""

    beat: datetime
    since: float


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
        self._seen: dict[int, _Seen] = {}
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
        self._look(workers)
        gone = [worker for worker in workers if self._is_gone(worker)]
        self._suspects = any(map(self._is_suspect, set(workers).difference(gone)))
        return gone

    def _look(self, workers: Sequence[Worker]) -> None:
        moment = steady()
        before, self._seen = self._seen, {}
        for worker in workers:
            seen = before.get(worker.pk)
            is_same = seen is not None and seen.beat == worker.heartbeat_time
            beat = worker.heartbeat_time
            self._seen[worker.pk] = seen if seen and is_same else _Seen(beat, moment)

    def _is_gone(self, worker: Worker) -> bool:
        watched = steady() - self._seen[worker.pk].since
        return self._heartbeat.is_sure() and watched >= worker.silence.total_seconds()

    def _is_suspect(self, worker: Worker) -> bool:
        return worker.is_silent(clock.now(worker.using)) and worker.jobs.exists()
