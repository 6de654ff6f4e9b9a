"""Which queues are served next, and when: probes, rotation, what is held back. Pure.

Moments are those of a clock that never goes back, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from hipq_django.domain.pauses import pause_after
from hipq_django.domain.throttling import MAX_DELAY_SECONDS
from hipq_django.engines.values import QueueWork
from hipq_django.models import Queue

PROBE_SECONDS = 0.02
"""How long a queue that is served again and again may keep the others waiting."""

MAX_SECONDS = 1.0
"""The same after a slow probe, even if the database was only busy."""

QUICK_SECONDS = 0.005
"""A probe this quick scans from the start of each queue; a slower one from its low-water mark."""

SHARE = 0.1
"""The share of a busy worker's time for probes that are slow, and for full scans."""

MAX_SCAN_PAUSE = 5.0
"""How long no full scan is made after a slow one, at most. A job before the low-water mark, because
it was committed late or goes first, waits for the next one."""

SCAN_SHARE = 0.05
"""The share of a worker's time for scanning jobs that are held back, once that was in vain."""

SPARE_SECONDS = 0.02
"""How long a free thread may take to start a job that it is handed."""

FORGETTING = 0.9
"""The share of the longest delay that is kept after each shorter one."""


def has_startable(work: QueueWork) -> bool:
    """Return whether a job of the queue may start."""
    return work.first_rank is not None and not work.queue.paused


def with_jobs(queue: Queue) -> QueueWork:
    """Return the work that a probe would report for a queue that may have jobs now."""
    return QueueWork(queue, first_rank=queue.low_water_mark, has_response=False, has_error=False)


class ProbePacer:
    """Decides when queues are probed again, and from where, by how long the last probes took."""

    def __init__(self) -> None:
        self._waiting_since: float | None = None
        self._seconds = 0.0
        self._next_full_scan = 0.0

    def defer_probe(self, now: float) -> bool:
        """Put the next probe off if the last one is recent enough; return whether it was.

        If the last probe found nothing, the others wait from this call on: so a worker that is
        woken serves the queue that has called it first, without another probe.
        """
        if self._waiting_since is None:
            self._waiting_since = now
        wait = pause_after(self._seconds, SHARE, least=PROBE_SECONDS, most=MAX_SECONDS)
        return now < self._waiting_since + wait

    def is_full_scan_due(self, now: float) -> bool:
        """Return whether to scan from the start of each queue; else from its low-water mark."""
        return now >= self._next_full_scan

    def record(self, began: float, ended: float, *, full_scan: bool, has_found: bool) -> None:
        """Note a probe. A slow full scan says nothing about probes from the low-water marks."""
        self._waiting_since = ended if has_found else None
        if full_scan and ended - began > QUICK_SECONDS:
            self._next_full_scan = ended + pause_after(ended - began, SHARE, most=MAX_SCAN_PAUSE)
        else:
            self._seconds = ended - began


class QueueRotation:
    """The queues as the last probe found them, and which are served before the next one."""

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        """By their ids."""
        self.left_more = False
        """Whether the last claim from plain queues filled a page, so that there are more jobs."""
        self._put_first: deque[str] = deque()
        self._left: list[QueueWork] = []
        self._last = 0

    def put_first(self, queue: str) -> None:
        """Serve a queue, by its name, first the next time; from any thread."""
        self._put_first.append(queue)

    def after_probe(self, found: Sequence[QueueWork]) -> list[QueueWork]:
        """Return the queues that have work, beginning behind the one that was served last."""
        self.queues = {work.queue.id: work.queue for work in found}
        self._left = []
        work = [q for q in found if q.has_response or q.has_error or has_startable(q)]
        return self.in_turn(work)

    def pop_next(self) -> list[QueueWork]:
        """Remove and return the queues that were put first and those whose turn did not come."""
        put_first = {self._put_first.popleft() for _ in range(len(self._put_first))}
        left, self._left = self._left, []
        if not put_first:
            return left
        called = [queue for queue in self.queues.values() if queue.name in put_first]
        first = self.in_turn(map(with_jobs, called))
        return first + [work for work in left if work.queue.name not in put_first]

    @property
    def has_more(self) -> bool:
        """Whether there are queues to serve before the next probe."""
        return bool(self._put_first or self._left)

    def in_turn(self, queues: Iterable[QueueWork]) -> list[QueueWork]:
        """Return queues in rotation, beginning behind the one that was served last."""
        return sorted(queues, key=lambda work: (work.queue.id <= self._last, work.queue.id))

    def served(self, queue: Queue) -> None:
        """Note that a queue had its turn."""
        self._last = queue.id

    def keep_rest(self, queues: Sequence[QueueWork]) -> None:
        """Keep the queues whose turn did not come, because there were no slots."""
        self._left = list(queues)


# Queues with throttlers


class StartDelay:
    """How long after an admission its jobs may still start, if their starts are counted.

    The latest possible start is counted. So this is only a little longer than this worker's last
    claims took to commit. What took long only once does not count: the database may have stood
    still.
    """

    def __init__(self) -> None:
        self.seconds = SPARE_SECONDS
        self._took = MAX_DELAY_SECONDS

    def record(self, seconds: float) -> None:
        """Note how long it took until jobs were handed to threads that were free."""
        usual, self._took = min(seconds, self._took), seconds
        self.seconds = max(2 * usual + SPARE_SECONDS, self.seconds * FORGETTING)

    def too_short(self) -> None:
        """Note that a job did not start in time."""
        self.seconds = min(2 * self.seconds, MAX_DELAY_SECONDS)


class HeldBackScans:
    """When a queue in which throttlers hold jobs is scanned again.

    Nothing tells a worker that a verdict has changed, so it asks again, once a second at least.
    After the end of one of its jobs, or when it is called to the queue, it asks at once.
    """

    def __init__(self) -> None:
        self._in_vain: set[int] = set()
        self._next: dict[int, float] = {}
        self._start_most: set[int] = set()

    def gave(self, queue: int, looked_at: int, started: int) -> None:
        """Note how many jobs of a queue a scan looked at, and how many of them started."""
        if 2 * started >= looked_at > 0:
            self._start_most.add(queue)
        else:
            self._start_most.discard(queue)

    def start_most(self, queue: int) -> bool:
        """Return whether most of the jobs that the last scan read have started."""
        return queue in self._start_most

    def may_begin(self, queue: int, now: float) -> bool:
        """Return whether to scan a queue now."""
        return now >= self._next.get(queue, 0.0)

    def record(self, queue: int, began: float, ended: float, *, full_scan: bool) -> None:
        """Note a scan that let nothing start; a `full_scan` came to the end of the queue.

        Scans go on without a pause until the whole queue was read.
        """
        if full_scan:
            self._in_vain.add(queue)
        if queue in self._in_vain and ended - began > QUICK_SECONDS:
            self._next[queue] = ended + pause_after(ended - began, SCAN_SHARE, most=MAX_SECONDS)

    def forget(self, queue: int) -> None:
        """Let a queue be scanned at once."""
        self._in_vain.discard(queue)
        self._next.pop(queue, None)

    def forget_all(self, queues: Iterable[int]) -> None:
        """Let several queues be scanned at once."""
        if self._in_vain:
            for queue in set(queues):
                self.forget(queue)
