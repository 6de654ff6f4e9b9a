"""A worker process: registers, runs the scheduler pass after pass, drains on SIGTERM."""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
import sys
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from django.db import Error, connections

from hipq_django import catalog, clock, moves, recovery, reranking
from hipq_django.conf import get_instance
from hipq_django.database import (
    in_one_line,
    locked,
    takes_writers_together,
    write_transaction,
)
from hipq_django.models import Job, Worker
from hipq_django.processes.back_off import BackOff
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.listener import Listener
from hipq_django.processes.pool import ThreadPool
from hipq_django.processes.writer import ResultWriter
from hipq_django.scheduler import BatchScheduler

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django.db.models import QuerySet

    from hipq_django.conf import InstanceSettings
    from hipq_django.processes.options import WorkerOptions

logger = logging.getLogger("hipq_django")

FLUSH_SECONDS = 0.05
BUSY_SECONDS = 0.002
POLL_SECONDS = 0.05
LISTENING_POLL_SECONDS = 0.5
LIVELY_SECONDS = 0.5
"""How long a worker that was woken looks often; longer than a process keeps quiet in `wakeup`."""
LIVELY_POLL_SECONDS = 0.005
OFTEN_SECONDS = 1.0
SELDOM_SECONDS = 60.0
UPKEEP_SHARE = 0.03
"""What a duty that finds nothing may take of the time: among millions of dead rows it is slow."""
WAIT_SECONDS = 0.5
GIVE_WAY_SECONDS = 0.001
"""How long the next pass waits for quick handlers that this one started."""
COLLECT_AFTER_OBJECTS = 20_000
SWITCH_SECONDS = 0.0005
"""How long a handler may compute while the scheduler, whose statement is done, waits."""


class WorkerProcess:
    """The worker of this process."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.config = get_instance(options.instance)
        self.using = self.config.database
        self._awake: SimpleQueue[None] = SimpleQueue()
        self._stops = 0
        self._stirred = 0.0
        self._back_off = BackOff()

    def run(self) -> None:
        """Run until stopped, or until idle where that was asked for."""
        catalog.sync(self.options.instance)
        self.pool = ThreadPool(self.options.threads, self._wake, self._flush)
        self._register()
        self.heartbeat = Heartbeat(self.worker, lambda: self.pool.in_hand)
        self.listener = Listener(self.config, self.options.queues, self._stir)
        self.scheduler = BatchScheduler(self.worker, self.pool)
        self.writer = ResultWriter(self.scheduler, self.pool, self._wake)
        threads = (self.pool, self.heartbeat, self.listener, self.writer)
        for thread in threads:
            thread.open()
        _spare_the_collector()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._work()
            self._drain()
        finally:
            for thread in threads:
                thread.close()
        self._sign_off()

    def stop(self) -> None:
        """Stop after what is in hand; called again, let go of that too."""
        self._stops += 1
        self._wake()

    def _wake(self) -> None:
        # Also called by signal handlers: an Event could deadlock with the wait it interrupts.
        self._awake.put(None)

    def _flush(self) -> None:
        """Have many results written: beside the claims, where the database can do both at once."""
        if takes_writers_together(self.using):
            self.writer.ask()
        else:
            self._wake()

    def _stir(self, queue: str) -> None:
        """Look at once, and often for a while: more may come that nobody is woken for."""
        self._stirred = time.monotonic()
        if queue:
            self.scheduler.turns.call(queue)
        self._wake()

    @property
    def has_let_go(self) -> bool:
        """Whether handlers may still be running that this worker let go of."""
        return self._stops > 1

    # Working

    def _work(self) -> None:
        self._upkeep = _Upkeep(self.config, self.scheduler)
        while not self._stops and not self._is_orphaned():
            idle = self._guarded(self._pass)
            if self.options.until_idle and idle:
                return

    def _pass(self) -> bool:
        """Do one pass and wait; return whether there is nothing left to do now."""
        self._prove_alive()
        was_empty = not self.scheduler.batch
        self.scheduler.run_once()
        kept_up = self._upkeep.run(
            all_of_it=self.options.until_idle and was_empty, waits=bool(self.scheduler.progress)
        )
        idle = was_empty and not kept_up and self.scheduler.found_nothing
        if not (self.options.until_idle and idle):
            self._wait()
        return idle

    def _wait(self) -> None:
        scheduler, pool = self.scheduler, self.pool
        if scheduler.contended:
            self._sleep(BUSY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311
        elif not (scheduler.progress and pool.free() + pool.ahead()):
            self._sleep(FLUSH_SECONDS if pool.in_hand > pool.threads else self._poll_seconds())
        elif not scheduler.turns.has_more:
            pool.await_done(GIVE_WAY_SECONDS)

    def _poll_seconds(self) -> float:
        """Return how long to wait for something new before looking again."""
        idle = time.monotonic() - self._stirred
        if idle < LIVELY_SECONDS:
            return max(LIVELY_POLL_SECONDS, idle / 4)
        usual = LISTENING_POLL_SECONDS if self.listener.is_listening else POLL_SECONDS
        return (self.options.interval or usual) * random.uniform(0.75, 1.0)  # noqa: S311

    def _sleep(self, seconds: float) -> None:
        try:
            self._awake.get(timeout=seconds)
            while True:
                self._awake.get_nowait()
        except Empty:
            return

    def _guarded(self, step: Callable[[], bool]) -> bool:
        """Run a step; after an error of the database back off, then go on."""
        try:
            done = step()
        except Error as error:
            self._retreat("database: %s", in_one_line(error))
            return False
        except Exception as error:  # one bad row must not stop every queue
            logger.exception("worker=%s error in a pass", self.worker.name)
            self._retreat("pass: %s", repr(error))
            return False
        self._back_off.reset()
        return done

    def _retreat(self, reason: str, detail: str) -> None:
        connections[self.using].close()
        seconds = self._back_off.next_seconds()
        logger.warning(
            "worker=%s back_off_seconds=%.2f " + reason, self.worker.name, seconds, detail
        )
        self._upkeep.forget()
        self._sleep(seconds)

    def _is_orphaned(self) -> bool:
        """Whether the supervisor that started this process is gone."""
        return bool(self.options.parent) and os.getppid() != self.options.parent

    # Belonging

    def _register(self) -> None:
        host, pid = socket.gethostname(), os.getpid()
        self.worker = Worker.objects.using(self.using).create(
            instance=self.options.instance,
            name=f"{host}:{pid}",
            queues=list(self.options.queues),
            threads=self.options.threads,
            heartbeat_seconds=self.config.heartbeat_seconds,
            heartbeat_time=clock.now(self.using),
            create_time=clock.now(self.using),
        )
        logger.info(
            "worker=%s event=started queues=%s threads=%s",
            self.worker.name, ",".join(self.options.queues) or "all", self.options.threads,
        )  # fmt: skip

    def _prove_alive(self) -> None:
        """After a long silence claim nothing before a beat is written.

        A process that was stopped, or cut off, may have been given up by the others; it goes on
        as a new worker, and what it still has in hand is theirs.
        """
        if self.heartbeat.is_fresh() or self.heartbeat.beat():
            return
        logger.error("worker=%s event=given_up_by_others", self.worker.name)
        self._register()
        self.heartbeat.worker = self.worker
        self.scheduler.worker = self.worker
        self.heartbeat.beat()

    def _now(self) -> datetime:
        return clock.now(self.using)

    # Stopping

    def _drain(self) -> None:
        self._announce(Worker.State.STOPPING)
        self._guarded(self._release_backlog)
        self.writer.close()
        while self.pool.in_hand and self._stops < 2:
            self._guarded(self._persist)
        self._guarded(self._release_rest)

    def _announce(self, state: Worker.State) -> None:
        self.worker.state = state
        self._guarded(lambda: bool(self._own_row().update(state=state)))
        logger.info("worker=%s event=%s", self.worker.name, state.value)

    def _own_row(self) -> QuerySet[Worker]:
        return Worker.objects.using(self.using).filter(pk=self.worker.pk, state__in=Worker.LIVE)

    def _persist(self) -> bool:
        self.scheduler.persist_batch()
        if self.pool.in_hand:
            self._sleep(FLUSH_SECONDS)
        return True

    def _release_backlog(self) -> bool:
        self._release({claim.id for claim in self.pool.take_backlog()})
        return True

    def _release_rest(self) -> bool:
        self._persist()
        self._release(set(self.scheduler.batch))
        return True

    def _release(self, ids: set[int]) -> None:
        with write_transaction(self.using):
            mine = Job.objects.using(self.using).live().filter(worker=self.worker, pk__in=ids)
            jobs = list(locked(mine.order_by("pk"), skip_locked=True))
            moves.hand_back(jobs, "Released: the worker stopped", self._now(), self.using)
        for job in jobs:
            self.scheduler.batch.pop(job.pk, None)
            logger.info("job=%s attempt=%s event=released", job.pk, job.attempt)

    def _sign_off(self) -> None:
        self._announce(Worker.State.STOPPED)


def _spare_the_collector() -> None:
    """Look for cyclic garbage less often, and not among what was loaded at the start.

    A batch makes thousands of objects, none of them in a cycle; looking through them took a
    quarter of a busy worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


class _Upkeep:
    """What a worker does now and then for the whole instance."""

    def __init__(self, config: InstanceSettings, scheduler: BatchScheduler) -> None:
        beat = config.heartbeat_seconds
        self._duties: list[tuple[float, Callable[[], int]]] = [
            (min(OFTEN_SECONDS, beat), lambda: recovery.time_out_overdue(config)),
            (min(OFTEN_SECONDS, beat), recovery.EarlyAnswers(config).match),
            (beat, lambda: recovery.recover_lost(config)),
            (beat, scheduler.reclaim),
            (beat, lambda: recovery.expire_early(config)),
            (beat, lambda: reranking.continue_ranking(config)),
            (SELDOM_SECONDS, lambda: reranking.find_strays(config)),
            (SELDOM_SECONDS, lambda: recovery.forget_workers(config)),
        ]
        self._due = [0.0] * len(self._duties)

    def run(self, *, all_of_it: bool, waits: bool) -> int:
        """Do the duties whose time has come, or all; return how many rows they moved.

        One that moved something may have more to do, and comes again soon. Those of a worker that
        is busy may wait a little for a moment in which it is not.
        """
        total = 0
        for index, (seconds, duty) in enumerate(self._duties):
            due = self._due[index] + WAIT_SECONDS * waits
            if all_of_it or time.monotonic() >= due:
                began = time.monotonic()
                moved = duty()
                rest = (time.monotonic() - began) / UPKEEP_SHARE
                pause = min(OFTEN_SECONDS, seconds) if moved else max(seconds, rest)
                self._due[index] = time.monotonic() + pause * random.uniform(0.8, 1.2)  # noqa: S311
                total += moved
        return total

    def forget(self) -> None:
        """Do everything again at the next pass; after an error nothing is certain."""
        self._due = [0.0] * len(self._duties)
