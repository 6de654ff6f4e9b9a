"""The threads that execute claims."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from django.db import connections

from hipq_django.claiming import PAGE
from hipq_django.executor import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper

    from hipq_django.results import Claim, Result

T = TypeVar("T")

AHEAD_SECONDS = 0.05
"""Claim ahead what the threads will have started by then; slow jobs are never claimed ahead."""

FLUSH_RESULTS = 500
"""So many results are written at once, whatever the scheduler is doing."""

HOLD_SECONDS = 0.05
"""How long a result may wait for others."""


class ThreadPool:
    """Threads that share one backlog; `wake` is called when the scheduler should look.

    `flush` is called instead when there are so many results that `take_many` has some.
    """

    def __init__(self, threads: int, wake: Callable[[], None], flush: Callable[[], None]) -> None:
        self.threads = threads
        self._wake = wake
        self._flush = flush
        self._backlog: deque[Claim] = deque()
        self._results: deque[Result] = deque()
        self.in_hand = 0
        """Claims that were started and whose results were not taken."""
        self._counting = threading.Lock()
        self._elsewhere = False
        self._is_alone = False
        self._mean_seconds = AHEAD_SECONDS
        self._first_result = 0.0
        self._work = threading.Condition()
        self._all_done = threading.Event()
        self._stopping = False

    def open(self) -> None:
        """Start the threads."""
        for number in range(self.threads):
            threading.Thread(target=self._run, name=f"hipq-{number}", daemon=True).start()

    def close(self) -> None:
        """Let the threads end when they are done."""
        with self._work:
            self._stopping = True
            self._work.notify_all()

    # What the scheduler asks

    def free(self) -> int:
        """Return how many jobs would start at once."""
        return max(0, self.threads - self._undone)

    def ahead(self) -> int:
        """Return how many jobs may be claimed beyond the free threads."""
        wanted = min(2 * PAGE, int(self.threads * AHEAD_SECONDS / self._mean_seconds))
        return max(0, wanted - max(self._undone, self.threads))

    @property
    def _undone(self) -> int:
        """Claims that wait for a thread or have one; results may wait and hold nobody back."""
        return self.in_hand - len(self._results)

    def start(self, claims: Sequence[Claim]) -> None:
        """Put the claims behind those that wait."""
        self._count(len(claims))
        with self._work:
            self._backlog.extend(claims)
            self._work.notify()

    def take_results(self, *, may_wait: bool = False) -> list[Result]:
        """Return, and forget, the results that are there; none while others are written.

        With `may_wait` none either while more are about to come: many at once cost less.
        """
        if self._elsewhere and not self._is_alone:
            return []
        return [] if may_wait and self._more_come() else self._take()

    def _more_come(self) -> bool:
        young = time.perf_counter() < self._first_result + HOLD_SECONDS
        return bool(self._backlog) and young and len(self._results) < FLUSH_RESULTS

    def leave_many(self) -> None:
        """Let the results be for the caller of `take_many`, who will come."""
        self._elsewhere = True

    def leave_none(self) -> None:
        """Let all results be for the caller of `take_results`, from now on."""
        self._is_alone = True

    def take_many(self) -> list[Result]:
        """Return, and forget, the results if they are many, else none.

        Until this returns none, all results are for the caller.
        """
        self._elsewhere = len(self._results) >= FLUSH_RESULTS
        return self._take() if self._elsewhere else []

    def await_done(self, seconds: float) -> None:
        """Wait until all claims are done, no longer than these seconds."""
        self._all_done.clear()
        if self._undone:
            self._all_done.wait(seconds)

    def give_back(self, results: Sequence[Result]) -> None:
        """Keep results that could not be written for a later attempt."""
        if not results:
            return
        self._count(len(results))
        self._results.extendleft(reversed(results))
        self._elsewhere = False

    def take_backlog(self) -> list[Claim]:
        """Return, and forget, the claims that have not started."""
        claims = _taken(self._backlog)
        self._count(-len(claims))
        return claims

    def _take(self) -> list[Result]:
        results = _taken(self._results)
        self._count(-len(results))
        return results

    def _count(self, change: int) -> None:
        with self._counting:
            self.in_hand += change

    # The threads

    def _run(self) -> None:
        try:
            own = connections.all()
            while (claim := self._next()) is not None:
                self._execute(claim, own)
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

    def _execute(self, claim: Claim, own: Sequence[BaseDatabaseWrapper]) -> None:
        began = time.perf_counter()
        _close_old(own)
        result = execute(claim)
        _close_old(own)
        ended = time.perf_counter()
        self._mean_seconds += (ended - began - self._mean_seconds) / 16
        if not self._results:
            self._first_result = ended
        self._results.append(result)
        if len(self._results) >= FLUSH_RESULTS:
            self._flush()
        elif not self._backlog:
            self._wake()
        if not self._undone:
            self._all_done.set()


def _taken(waiting: deque[T]) -> list[T]:
    """Empty a deque that other threads fill and empty too."""
    taken: list[T] = []
    while waiting:
        try:
            taken.append(waiting.popleft())
        except IndexError:
            break  # another thread was quicker
    return taken


def _close_old(own: Sequence[BaseDatabaseWrapper]) -> None:
    """Do for one thread what Django does around a request, at little cost where none is open."""
    for connection in own:
        if connection.connection is not None:
            connection.close_if_unusable_or_obsolete()
