"""The threads that execute claims."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.database.errors import in_one_line
from hipq_django.domain.redaction import as_shown
from hipq_django.processes.connections import (
    close_old,
    close_old_of_loops,
    close_with_thread,
    end_transactions_and_close_old,
    open_caches,
)
from hipq_django.processes.stop_signals import leave_fork
from hipq_django.scheduler.context import PAGE_SIZE
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.scheduler.executor import execute, left_open, undone
from hipq_django.transitions.values import (
    RESERVATION_SECONDS,
    Claim,
    Decided,
    Failed,
    Released,
    Result,
)

AHEAD_SECONDS = 0.05
"""How far ahead to claim: jobs that the threads will start within this time, never slow ones."""


class ThreadPool:
    """Threads that share one backlog of claims and deliver their results to the batch.

    `wake` is called when the scheduler should do a pass; `flush` is called instead if so many
    results wait that a writer should write them. `confirm` asks the database whether a claim still
    holds.
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
        self._fresh_until = 0.0
        """Until when no claim in the backlog has waited too long, by the steady clock."""
        self._current: dict[int, Claim] = {}
        """The claim that each busy thread executes."""
        self._mean_seconds = AHEAD_SECONDS
        self._work = threading.Condition()
        self._all_done = threading.Event()
        self._stopping = False
        self._process = os.getpid()

    def open(self) -> None:
        """Start the threads."""
        connection_created.connect(close_with_thread)  # also in threads that handlers start
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
        """Return how many jobs may be claimed ahead of free threads.

        A thread that executes a slow job will start none of them soon.
        """
        quick = self.threads
        if self._current:
            lately = steady() - AHEAD_SECONDS
            quick -= sum(claim.started_at < lately for claim in self.executing())
        wanted = quick * AHEAD_SECONDS / self._mean_seconds
        most = min(2 * PAGE_SIZE, int(wanted), self.batch.room)
        return max(0, most - max(self.batch.unfinished, self.threads))

    @property
    def backlog(self) -> int:
        """How many claims wait for a thread."""
        return len(self._backlog)

    def start(self, claims: Sequence[Claim]) -> None:
        """Put the claims, which are in the batch already, into the backlog.

        Those of queues that have none there come first, so that a queue which always has more work
        than the threads can do delays no other.
        """
        with self._work:
            self._fresh_until = min(self._fresh_until, claims[0].known_at + RESERVATION_SECONDS)
            waiting = tuple(self._backlog)
            # Claims come in the order of their queues; nearly always all are of one.
            if waiting and len({*map(_queue_of, (claims[0], claims[-1], waiting[-1]))}) > 1:
                busy = set(map(_queue_of, waiting))
                first = [claim for claim in claims if _queue_of(claim) not in busy]
                self._backlog.extendleft(reversed(first))
                claims = [claim for claim in claims if _queue_of(claim) in busy]
            self._backlog.extend(claims)
            self._work.notify()

    def executing(self) -> list[Claim]:
        """Return the claims that threads execute."""
        return list(self._current.values())

    def await_done(self, seconds: float) -> None:
        """Wait until all claims are done, but no longer than `seconds`."""
        self._all_done.clear()
        if self.batch.unfinished:
            self._all_done.wait(seconds)

    def release_stale(self) -> None:
        """Release the reservations that have waited too long; no thread is free for them."""
        now = steady()
        if now < self._fresh_until:
            return
        for claim in tuple(self._backlog):
            if claim.known_at >= now - RESERVATION_SECONDS:
                continue
            if len(self._current) < self.threads:
                return
            with suppress(ValueError):  # a thread has become free, and has taken it
                self._backlog.remove(claim)
                self._deliver(Released(claim, NO_THREAD))
        oldest = min((claim.known_at for claim in tuple(self._backlog)), default=now)
        self._fresh_until = oldest + RESERVATION_SECONDS

    def take_backlog(self) -> list[Claim]:
        """Remove and return the claims that have not started."""
        claims: list[Claim] = []
        with suppress(IndexError):  # until there is none; threads take some, too
            while True:
                claims.append(self._backlog.popleft())
        return claims

    # The threads

    def _run(self, number: int) -> None:
        try:
            open_caches()
            # Before anything calculates: a job would share, and might change, how decimals do.
            context = copy_context()
            while not self._execute_until_stopped(number, context):
                pass
        finally:
            connections.close_all()

    def _execute_until_stopped(self, number: int, context: Context) -> bool:
        """Execute claims until the thread is to end; return False if something hit it meanwhile.

        Code of a handler may raise something in its thread from another one, and late. It must
        not end the thread.
        """
        try:
            own = connections.all()
            while (claim := self._take_next(own)) is not None:
                self._current[number] = claim
                self._work_on(claim, number, own, context)
        except BaseException as error:
            if hit := self._current.pop(number, None):
                with suppress(Exception):  # whoever is to be woken may be what has failed
                    self._deliver(undone(hit, error))  # only the first result counts
            events.error("thread_hit", "it goes on", thread_name=f"hipq-{number}", exception=error)
            return False
        return True

    def _take_next(self, own: Sequence[BaseDatabaseWrapper]) -> Claim | None:
        """Return the next claim; None if the thread is to end."""
        while True:
            try:
                return self._backlog.popleft()
            except IndexError:
                if not self._await_next(own):
                    return None

    def _await_next(self, own: Sequence[BaseDatabaseWrapper]) -> bool:
        """Wait until there is a claim; return False if the thread is to end."""
        with self._work:
            if self._stopping:
                return False
            if not self._backlog:
                self._work.wait()
            # One wakes the next: woken together they would wait for each other.
            if len(self._backlog) > 1:
                self._work.notify()
        with suppress(Exception):  # then Django opens a new one
            close_old(own)  # some may have grown too old meanwhile
        return True

    def _work_on(
        self, claim: Claim, number: int, own: Sequence[BaseDatabaseWrapper], context: Context
    ) -> None:
        """Execute a claim and deliver its result; whatever the handler does, the thread goes on."""
        began = claim.started_at = steady()
        try:
            # Nearly always it is fresh.
            if not claim.is_fresh and (hindrance := self._hindrance(claim)):
                result: Result = Released(claim, hindrance)
            else:
                for connection in own:
                    connection.queries_log.clear()  # which Django keeps for DEBUG
                result = self._of_this_process(execute(claim, context))
                if aliases := end_transactions_and_close_old(own):
                    result = left_open(claim, aliases)
        except BaseException as error:
            result = self._of_this_process(undone(claim, error))
            with suppress(Exception):  # the thread goes on whatever becomes of its connections
                end_transactions_and_close_old(own)
        if isinstance(result, Failed):
            close_old_of_loops()
        del self._current[number]
        self._mean_seconds += (steady() - began - self._mean_seconds) / 16
        self._deliver(result)
        del result  # its exception knows this frame, and would keep it in a circle

    def _of_this_process(self, result: Result) -> Result:
        """Return a result; a process that the handler has forked, and that comes here, ends.

        It would go on as a worker with copies of the claims, and of the connections.
        """
        if os.getpid() != self._process:
            leave_fork(result.exception if isinstance(result, Failed | Decided) else None)
        return result

    def _hindrance(self, claim: Claim) -> str:
        """Return why a claim that is not fresh does not start; '' if it starts in time and holds.

        If that cannot be asked, for example in an outage, the job has not failed: it has not begun.
        """
        try:
            claim.started_at = 0.0  # it is a reservation for as long as asking takes
            if steady() > claim.start_by or not self._confirm(claim):
                return TOO_LATE
        except Exception as error:
            return NOT_ASKED + in_one_line(error, partial(as_shown, claim))
        claim.started_at = steady()
        return TOO_LATE if claim.started_at > claim.start_by else ""

    def _deliver(self, result: Result) -> None:
        if self.batch.deliver(result):
            self._flush()
        if not self._backlog:
            self._wake()
        if not self.batch.unfinished:
            self._all_done.set()


def _queue_of(claim: Claim) -> int:
    return claim.snapshot.queue.id


NO_THREAD = "Released: no thread was free to start it"
TOO_LATE = "Released: it could not start in time, or its claim did not hold any more"
NOT_ASKED = "Released: whether its claim still held could not be asked: "
