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

from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import in_one_line, is_outage
from hipq_django.database.locks import takes_writers_together
from hipq_django.engines.values import GivenUpError
from hipq_django.maintenance import early_answers, recovery, reranking
from hipq_django.maintenance.duties import OFTEN_SECONDS, SELDOM_SECONDS, Duties, Duty
from hipq_django.models import Worker, catalog
from hipq_django.processes.backoff import BackOff
from hipq_django.processes.dead_connections import DeadConnections
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.listener import Listener
from hipq_django.processes.outage import Outage
from hipq_django.processes.own_connections import adopt
from hipq_django.processes.pool import ThreadPool
from hipq_django.processes.result_writer import ResultWriter
from hipq_django.processes.watchdog import Watchdog
from hipq_django.processes.witness import LOOKS_IN_A_BEAT, Witness
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.transitions.values import Released

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.models import QuerySet

    from hipq_django.processes.options import WorkerOptions
    from hipq_django.transitions.values import Claim

logger = logging.getLogger("hipq_django")

FLUSH_SECONDS = 0.05
BUSY_SECONDS = 0.002
POLL_SECONDS = 0.05
LISTENING_POLL_SECONDS = 0.5
LIVELY_SECONDS = 0.5
"""How long a worker that was woken probes often; longer than the debounce of `notify`."""
LIVELY_POLL_SECONDS = 0.005
GIVE_WAY_SECONDS = 0.001
"""How long the next pass waits for quick handlers that this one started."""
COLLECT_AFTER_OBJECTS = 20_000
SWITCH_SECONDS = 0.0005
"""How long a handler may compute while the scheduler, whose statement is done, waits."""


class WorkerProcess:
    """The worker of this process; `registered` is told the id of each row that it has."""

    def __init__(
        self, options: WorkerOptions, registered: Callable[[int], None] = lambda row: None
    ) -> None:
        self.options = options
        self._registered = registered
        self.config = get_instance(options.instance)
        self.using = self.config.database
        self._awake: SimpleQueue[None] = SimpleQueue()
        self._stops = 0
        self._stirred = 0.0
        self._back_off = BackOff()
        self._outage = Outage()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._began_pass = steady()
        self._is_asleep = False
        self._watchdog = Watchdog(self.name, self.config.silence_seconds, self._pass_sign)
        self.batch = CurrentBatch(self.config.silence_seconds)
        self.pool = ThreadPool(
            self.options.threads,
            self.batch,
            wake=self._wake,
            flush=self._flush,
            confirm=self._confirm,
        )

    def run(self) -> None:
        """Run until stopped, or until idle where that was asked for."""
        self._watchdog.open()
        try:
            self._run()
        finally:
            self._watchdog.close()

    def _run(self) -> None:
        adopt(self.using)
        catalog.sync(self.options.instance)
        self._register()
        self.heartbeat = Heartbeat(self.worker, lambda: len(self.batch), self._wake)
        self._watchdog.follow(self.heartbeat)
        self.listener = Listener(self.config, self.options.queues, self._wake_up)
        self.scheduler = BatchScheduler(self.worker, self.pool)
        self.writer = ResultWriter(self.scheduler, self._wake)
        threads = (self.pool, self.heartbeat, self.listener, self.writer)
        for thread in threads:
            thread.open()
        _tune_garbage_collection()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._work()
            self._drain()
        finally:
            for thread in threads:
                thread.close()
        self._deregister()

    def stop(self) -> None:
        """Stop after what is in flight; called again, release that too."""
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

    def _confirm(self, claim: Claim) -> bool:
        return self.scheduler.confirm(claim)

    def _wake_up(self, queue: str) -> None:
        """Probe at once, and often for a while: more may come that nobody is woken for."""
        self._stirred = time.monotonic()
        if queue:
            self.scheduler.rotation.put_first(queue)
        self._wake()

    @property
    def has_abandoned_handlers(self) -> bool:
        """Whether handlers may still be running that this worker let go of."""
        return self._stops > 1

    # Working

    def _work(self) -> None:
        self._witness = Witness(self.config, self.heartbeat)
        self._duties = Duties(self.using, self._make_duties())
        while not self._stops and not self._is_orphaned():
            idle = self._guarded(self._pass)
            if self.options.until_idle and idle:
                return

    def _pass(self) -> bool:
        """Do one pass and wait; return whether there is nothing left to do now."""
        self._ensure_registered()
        was_empty = not self.batch
        self.scheduler.run_once()
        kept_up = self._duties.run(
            all_of_it=self.options.until_idle and was_empty, waits=bool(self.scheduler.moved)
        )
        is_done = not kept_up and not self._witness.waits
        idle = was_empty and is_done and self.scheduler.found_nothing
        if not (self.options.until_idle and idle):
            self._wait()
        return idle

    def _make_duties(self) -> list[Duty]:
        config, beat = self.config, self.config.heartbeat_seconds
        dead = DeadConnections(self.using, config.silence_seconds, self.pool.connections_at_work)
        often = min(OFTEN_SECONDS, beat)
        return [
            Duty("time_out_overdue", often, self._witness.time_out_overdue),
            Duty("match_early", often, early_answers.EarlyAnswers(config).match),
            Duty("recover_lost", beat / LOOKS_IN_A_BEAT, self._witness.recover_lost),
            Duty("release_unconfirmed", beat, self.scheduler.release_unconfirmed),
            Duty("shut_dead_connections", beat, dead.shut),
            Duty("expire_early", beat, lambda: early_answers.expire_early(config)),
            Duty("continue_ranking", beat, lambda: reranking.continue_ranking(config)),
            Duty("find_strays", SELDOM_SECONDS, lambda: reranking.find_strays(config)),
            Duty("forget_workers", SELDOM_SECONDS, lambda: recovery.forget_workers(config)),
        ]

    def _wait(self) -> None:
        scheduler, pool = self.scheduler, self.pool
        if scheduler.contended:
            self._sleep(BUSY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311
        elif not (scheduler.moved and pool.free_slots() + pool.prefetch_slots()):
            self._sleep(FLUSH_SECONDS if len(self.batch) > pool.threads else self._poll_seconds())
        elif not scheduler.rotation.has_more:
            pool.await_done(GIVE_WAY_SECONDS)

    def _poll_seconds(self) -> float:
        """Return how long to wait for something new before looking again."""
        idle = time.monotonic() - self._stirred
        if idle < LIVELY_SECONDS:
            return max(LIVELY_POLL_SECONDS, idle / 4)
        usual = LISTENING_POLL_SECONDS if self.listener.is_listening else POLL_SECONDS
        return (self.options.interval or usual) * random.uniform(0.75, 1.0)  # noqa: S311

    def _pass_sign(self) -> object:
        """Return what stands still while a statement of the scheduler has no answer."""
        return object() if self._is_asleep else self._began_pass

    def _sleep(self, seconds: float) -> None:
        self._is_asleep = True
        try:
            self._awake.get(timeout=seconds)
            while True:
                self._awake.get_nowait()
        except Empty:
            return
        finally:
            self._is_asleep = False

    def _guarded(self, step: Callable[[], bool]) -> bool:
        """Run a step; after an error of the database back off, then go on."""
        self._began_pass = steady()
        try:
            done = step()
        except GivenUpError:
            self.heartbeat.note_given_up()
            return False
        except Error as error:
            if is_outage(error):
                self._outage.begin()
            self._back_off_after("database: %s", in_one_line(error))
            return False
        except Exception as error:  # one bad row must not stop every queue
            logger.exception("worker=%s error in a pass", self.worker.name)
            self._back_off_after("pass: %s", repr(error))
            return False
        self._back_off.reset()
        self._outage.end(self.worker.name)
        return done

    def _back_off_after(self, reason: str, detail: str) -> None:
        connections[self.using].close()
        seconds = self._back_off.next_seconds()
        logger.warning(
            "worker=%s back_off_seconds=%.2f " + reason, self.worker.name, seconds, detail
        )
        self._duties.forget()
        self._sleep(seconds)

    def _is_orphaned(self) -> bool:
        """Whether the supervisor that started this process is gone."""
        return bool(self.options.parent) and os.getppid() != self.options.parent

    # Belonging

    def _register(self) -> None:
        self.worker = Worker.objects.using(self.using).create(
            instance=self.options.instance,
            name=self.name,
            queues=list(self.options.queues),
            threads=self.options.threads,
            heartbeat_seconds=self.config.heartbeat_seconds,
            heartbeat_time=clock.now(self.using),
            create_time=clock.now(self.using),
        )
        self._registered(self.worker.pk)
        logger.info(
            "worker=%s event=started queues=%s threads=%s",
            self.worker.name, ",".join(self.options.queues) or "all", self.options.threads,
        )  # fmt: skip

    def _ensure_registered(self) -> None:
        """After a long silence, or an outage, claim nothing before a beat is written.

        A process that was stopped, or cut off, may have been given up by the others; it goes on
        as a new worker. What has not started is theirs; what runs is written if they left it.
        """
        is_fresh = self.heartbeat.is_fresh() and not self._outage.is_on
        if is_fresh or self.heartbeat.beat():
            return
        logger.error("worker=%s event=given_up_by_others", self.worker.name)
        self.batch.discard(self.pool.take_backlog())
        self._register()
        self.scheduler.worker = self.worker
        self.heartbeat.begin_anew(self.worker)

    # Stopping

    def _drain(self) -> None:
        self._announce(Worker.State.STOPPING)
        self._release(self.pool.take_backlog())
        self.writer.close()
        while self.batch and self._stops < 2 and not self._is_cut_off():
            self._try(self._persist)
        if self._is_cut_off():
            self._report_unwritten()
        self._release(self.pool.executing())
        self._try(self._persist)

    def _try(self, step: Callable[[], bool]) -> None:
        """Do a step of the end; none where that would only make the end late."""
        if not self._is_cut_off():
            self._guarded(step)

    def _is_cut_off(self) -> bool:
        """Whether nothing executes, and the database has been away for as long as makes it lost."""
        is_idle = not self.pool.executing()
        return is_idle and self._outage.seconds >= self.config.silence_seconds

    def _report_unwritten(self) -> None:
        """Say whose results nobody will know; others run those jobs again."""
        ids = self.batch.ids
        logger.error(
            "worker=%s event=cut_off away_seconds=%.0f: it stops; %s results could not be "
            "written, jobs=%s",
            self.name, self._outage.seconds, len(ids), ids,
        )  # fmt: skip

    def _announce(self, state: Worker.State) -> None:
        self.worker.state = state
        self._try(lambda: bool(self._own_row().update(state=state)))
        logger.info("worker=%s event=%s", self.worker.name, state.value)

    def _own_row(self) -> QuerySet[Worker]:
        return Worker.objects.using(self.using).filter(pk=self.worker.pk, state__in=Worker.LIVE)

    def _persist(self) -> bool:
        if self._outage.is_on:
            self.heartbeat.beat()  # without results there is nothing else that asks the database
        self.scheduler.persist_batch()
        if self.batch:
            self._sleep(FLUSH_SECONDS)
        return True

    def _release(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.batch.deliver(Released(claim, "Released: the worker stopped"))

    def _deregister(self) -> None:
        self._announce(Worker.State.STOPPED)


def _tune_garbage_collection() -> None:
    """Look for cyclic garbage less often, and not among what was loaded at the start.

    A batch makes thousands of objects, none of them in a cycle; looking through them took a
    quarter of a busy worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
