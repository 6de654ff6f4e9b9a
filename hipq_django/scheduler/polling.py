"""Which queues are looked at next, and when: probes, turns, and queues with throttlers. Pure.

Moments are those of a clock that never goes back, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from hipq_django.engines.values import QueueWork
from hipq_django.models import Queue

PROBE_SECONDS = 0.02
"""How long a queue that is served again and again may keep the others waiting."""

MAX_SECONDS = 1.0
"""The same after a slow probe, be it only because the database stood still."""

QUICK_SECONDS = 0.005
"""A probe this quick scans from the start of each queue; a slower one from its low-water mark."""

SHARE = 0.1
"""The share of a busy worker's time for probes that are slow, and for full scans."""

SCAN_SHARE = 0.05
"""The share of a worker's time for looking through held jobs, once that was in vain."""

SPARE_SECONDS = 0.02
"""How long a free thread may take to start a job that it is handed."""

MAX_DELAY_SECONDS = 5.0
FORGETTING = 0.9
"""The share of the longest delay that is left after each one that was shorter."""


def has_startable(work: QueueWork) -> bool:
    """Return whether a job of the queue may start."""
    return work.first_rank is not None and not work.queue.paused


def with_jobs(queue: Queue) -> QueueWork:
    """Return what a probe would say of a queue that may have jobs by now."""
    return QueueWork(queue, first_rank=queue.low_water_mark, has_response=False, has_error=False)


class ProbePacer:
    """Says when the queues are probed again, and from where, by how long the last probes took."""

    def __init__(self) -> None:
        self._waiting_since: float | None = None
        self._seconds = 0.0
        self._next_full_scan = 0.0

    def is_recent(self, now: float) -> bool:
        """Return whether the last probe is recent enough to go on without another."""
        if self._waiting_since is None:
            self._waiting_since = now
        wait = min(max(PROBE_SECONDS, self._seconds / SHARE), MAX_SECONDS)
        return now < self._waiting_since + wait

    def is_full_scan_due(self, now: float) -> bool:
        """Return whether to scan from the start of each queue; else from its low-water mark."""
        return now >= self._next_full_scan

    def record(self, began: float, ended: float, *, full_scan: bool) -> None:
        """Note a probe. A slow full scan says nothing of probes from the low-water marks."""
        self._waiting_since = None
        if full_scan and ended - began > QUICK_SECONDS:
            self._next_full_scan = began + (ended - began) / SHARE
        else:
            self._seconds = ended - began


class QueueRotation:
    """The queues as the last probe found them, and which are served before the next one."""

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        """By their ids."""
        self._called: deque[str] = deque()
        self._left: list[QueueWork] = []
        self._last = 0

    def put_first(self, queue: str) -> None:
        """Let a queue, by its name, be tried first the next time; from any thread."""
        self._called.append(queue)

    def after_probe(self, found: Sequence[QueueWork]) -> list[QueueWork]:
        """Return the queues that have something to do, first the one behind the last turn's."""
        self.queues = {busy.queue.pk: busy.queue for busy in found}
        self._left = []
        busy = [q for q in found if q.has_response or q.has_error or has_startable(q)]
        return self.in_turn(busy)

    def pop_next(self) -> list[QueueWork]:
        """Return, and forget, the queues that were called and those whose turn did not come."""
        called = {self._called.popleft() for _ in range(len(self._called))}
        left, self._left = self._left, []
        known = self.queues.values() if called else []
        first = self.in_turn([with_jobs(queue) for queue in known if queue.name in called])
        return first + [busy for busy in left if busy.queue.name not in called]

    @property
    def has_more(self) -> bool:
        """Whether there are queues to be tried before the next look."""
        return bool(self._called or self._left)

    def in_turn(self, queues: Iterable[QueueWork]) -> list[QueueWork]:
        """Return queues in their turn: first the one behind the last, which had its turn before."""
        return sorted(queues, key=lambda work: (work.queue.pk <= self._last, work.queue.pk))

    def served(self, queue: Queue) -> None:
        """Note that a queue had its turn."""
        self._last = queue.pk

    def keep_rest(self, queues: Sequence[QueueWork]) -> None:
        """Note whose turn did not come, for want of room."""
        self._left = list(queues)


# Queues with throttlers


class StartDelay:
    """How long after an admission its jobs may still start, where their starts are counted.

    The start that is counted is the latest possible one. So it is no longer than this worker's
    claims lately took to be committed, with something to spare.
    """

    def __init__(self) -> None:
        self.seconds = SPARE_SECONDS

    def record(self, seconds: float) -> None:
        """Note how long it took until jobs were handed to threads that were free."""
        self.seconds = max(2 * seconds + SPARE_SECONDS, self.seconds * FORGETTING)

    def too_short(self) -> None:
        """Note that a job did not start in time."""
        self.seconds = min(2 * self.seconds, MAX_DELAY_SECONDS)


class HeldScans:
    """When a queue is looked through again in which throttlers hold jobs.

    Nothing tells a worker that a verdict has changed, so it asks again. What it could know of, an
    end of one of its jobs or another limit say, lets it ask at once.
    """

    def __init__(self) -> None:
        self._in_vain: dict[int, object] = {}
        self._next: dict[int, float] = {}
        self._start_most: set[int] = set()

    def gave(self, queue: int, looked_at: int, started: int) -> None:
        """Note how many jobs of a queue a scan looked at, and how many of them started."""
        if 2 * started >= looked_at > 0:
            self._start_most.add(queue)
        else:
            self._start_most.discard(queue)

    def start_most(self, queue: int) -> bool:
        """Return whether most of what the last look at the queue was for started."""
        return queue in self._start_most

    def may_begin(self, queue: int, now: float, limits: object) -> bool:
        """Return whether to look at a queue, by its id, whose row says these `limits`."""
        if self._in_vain.get(queue, limits) != limits:
            self.forget(queue)
        return now >= self._next.get(queue, 0.0)

    def had(
        self, queue: int, began: float, ended: float, limits: object, *, is_whole: bool
    ) -> None:
        """Note a scan that let nothing start; `is_whole` where it came to the end of the queue.

        It goes on without a pause until all of the queue was looked through.
        """
        if is_whole:
            self._in_vain[queue] = limits
        if queue in self._in_vain and ended - began > QUICK_SECONDS:
            self._next[queue] = ended + min((ended - began) / SCAN_SHARE, MAX_SECONDS)

    def forget_all(self, queues: Iterable[int]) -> None:
        """Do that with several, where any is waited with."""
        if self._in_vain:
            for queue in set(queues):
                self.forget(queue)

    def forget(self, queue: int) -> None:
        """Let a queue be looked through at once."""
        self._in_vain.pop(queue, None)
        self._next.pop(queue, None)
