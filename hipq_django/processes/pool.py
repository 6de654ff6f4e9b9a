"""The threads that execute claims."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from hipq_django.database.clock import steady
from hipq_django.processes.connections import close_old, end_transactions_and_close_old
from hipq_django.scheduler.context import PAGE_SIZE
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.scheduler.executor import execute, left_open, undone
from hipq_django.transitions.values import Claim, Released, Result

AHEAD_SECONDS = 0.05
"""Claim ahead what the threads will have started by then; slow jobs are never claimed ahead."""


class ThreadPool:
    """Threads that share one backlog of claims and deliver their results to the batch.

    `wake` is called when the scheduler should do a pass, `flush` instead when so many results wait
    that a writer should come. `confirm` asks the database whether a claim still holds.
    """

    def __init__(
        self,
        threads: int,
        batch: CurrentBatch,
        *,
        wake: Callable[[], None],
        flush: Callable[[], None],
        confirm: Callable[[Claim], bool],
    ) -> None:
        self.threads = threads
        self.batch = batch
        self._wake = wake
        self._flush = flush
        self._confirm = confirm
        self._backlog: deque[Claim] = deque()
        self._current: dict[int, Claim] = {}
        """What each thread that is at work is at."""
        self._connections: dict[int, Sequence[BaseDatabaseWrapper]] = {}
        """Those of each thread."""
        self._mean_seconds = AHEAD_SECONDS
        self._work = threading.Condition()
        self._all_done = threading.Event()
        self._stopping = False

    def open(self) -> None:
        """Start the threads."""
        for number in range(self.threads):
            threading.Thread(
                target=self._run, args=[number], name=f"hipq-{number}", daemon=True
            ).start()

    def close(self) -> None:
        """Let the threads end when they are done."""
        with self._work:
            self._stopping = True
            self._work.notify_all()

    # What the scheduler asks

    def free_slots(self) -> int:
        """Return how many jobs would start at once."""
        if self.batch.is_full:
            return 0
        return max(0, self.threads - self.batch.unfinished)

    def prefetch_slots(self) -> int:
        """Return how many jobs may be claimed beyond the free threads.

        A thread that is at a slow job will start none of them soon.
        """
        if self.batch.is_full:
            return 0
        lately = steady() - AHEAD_SECONDS
        slow = sum(claim.started_at < lately for claim in self.executing())
        wanted = (self.threads - slow) * AHEAD_SECONDS / self._mean_seconds
        return max(0, min(2 * PAGE_SIZE, int(wanted)) - max(self.batch.unfinished, self.threads))

    @property
    def backlog(self) -> int:
        """How many claims wait for a thread."""
        return len(self._backlog)

    def start(self, claims: Sequence[Claim]) -> None:
        """Put the claims, which are in the batch, behind those that wait."""
        with self._work:
            self._backlog.extend(claims)
            self._work.notify()

    def executing(self) -> list[Claim]:
        """Return the claims that threads are at."""
        return list(self._current.values())

    def connections_at_work(self) -> list[BaseDatabaseWrapper]:
        """Return the database connections of the threads that are at a claim."""
        threads = [self._connections.get(number, ()) for number in list(self._current)]
        return [connection for own in threads for connection in own]

    def await_done(self, seconds: float) -> None:
        """Wait until all claims are done, no longer than these seconds."""
        self._all_done.clear()
        if self.batch.unfinished:
            self._all_done.wait(seconds)

    def release_stale(self) -> None:
        """Give up the reservations that have waited for too long; no thread is free for them."""
        with suppress(IndexError):  # a thread has become free, and has taken the last
            while len(self._current) >= self.threads and self._backlog[0].is_stale:
                self._deliver(Released(self._backlog.popleft(), NO_THREAD))

    def take_backlog(self) -> list[Claim]:
        """Return, and forget, the claims that have not started."""
        claims: list[Claim] = []
        with suppress(IndexError):  # until there is none; threads take some, too
            while True:
                claims.append(self._backlog.popleft())
        return claims

    # The threads

    def _run(self, number: int) -> None:
        try:
            own = self._connections[number] = connections.all()
            while (claim := self._next()) is not None:
                self._work_on(claim, number, own)
        finally:
            connections.close_all()

    def _next(self) -> Claim | None:
        while True:
            try:
                return self._backlog.popleft()
            except IndexError:
                with self._work:
                    if self._stopping:
                        return None
                    if not self._backlog:
                        self._work.wait()
                    # One wakes the next: woken together they would wait for each other.
                    if len(self._backlog) > 1:
                        self._work.notify()

    def _work_on(self, claim: Claim, number: int, own: Sequence[BaseDatabaseWrapper]) -> None:
        """Deliver how the job ended; whatever its handler does, the thread lives on."""
        began = claim.started_at = steady()
        self._current[number] = claim
        try:
            close_old(own)
            if claim.is_fresh or self._may_start(claim):
                result = execute(claim)
                if aliases := end_transactions_and_close_old(own):
                    result = left_open(claim, aliases)
            else:
                result = Released(claim, TOO_LATE)
        except BaseException as error:
            result = undone(claim, error)
        del self._current[number]
        self._mean_seconds += (steady() - began - self._mean_seconds) / 16
        self._deliver(result)
        del result  # its exception knows this frame, and would keep it in a circle

    def _may_start(self, claim: Claim) -> bool:
        """Whether a claim starts in time, and holds still, after it waited for a thread."""
        return claim.started_at <= claim.start_by and self._confirm(claim)

    def _deliver(self, result: Result) -> None:
        if self.batch.deliver(result):
            self._flush()
        if not self._backlog:
            self._wake()
        if not self.batch.unfinished:
            self._all_done.set()


NO_THREAD = "Released: no thread was free to start it"
TOO_LATE = "Released: it could not start in time, or its claim did not hold any more"
