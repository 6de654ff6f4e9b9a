"""A worker process: registers, runs the scheduler pass after pass, drains on SIGTERM."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from math import inf

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.database.errors import DeclaredLostError, is_outage
from hipq_django.database.locks import takes_writers_together
from hipq_django.extensions import tell_of_start
from hipq_django.maintenance.duties import (
    OFTEN_SECONDS,
    Duties,
    Duty,
    duties_of_instance,
    often_seconds,
)
from hipq_django.models import Worker
from hipq_django.processes.connections import bound_waits
from hipq_django.processes.heartbeat import LOOKS_IN_A_BEAT, Witness
from hipq_django.processes.held_threads import HeldThreads
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.own_threads import Listener, ResultWriter
from hipq_django.processes.pool import ThreadPool
from hipq_django.processes.pulling import Puller
from hipq_django.processes.recycling import Recycling
from hipq_django.processes.registered import RegisteredProcess
from hipq_django.processes.row_sync import RowSync
from hipq_django.processes.stop_signals import ENDED_ITSELF
from hipq_django.scheduler import companions
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.schedules import declared
from hipq_django.schedules.firing import Firing
from hipq_django.transitions.values import Claim, Released

# Each names the workloads of the benchmarks that show its effect: measure these to change it.

# How long it waits for results while more is in flight than its threads can be at. W3.
FLUSH_SECONDS = 0.05
# How long it gives way where others were claiming from the same queues. W4, W11.
BUSY_SECONDS = 0.002
# And what share of the time for which they have done so already, if that lasts.
BUSY_SHARE = 0.125
# How long an idle worker pauses between two probes, by itself and where NOTIFY wakes it. W5, W5c.
POLL_SECONDS = 0.05
LISTENING_POLL_SECONDS = 0.5
# How long a worker that was woken probes often, longer than the debounce of `notify`; and the first
# of the pauses, which grow. W5.
LIVELY_SECONDS = 0.5
LIVELY_POLL_SECONDS = 0.005
# How long the next pass waits for quick handlers that this one started. W3, W8.
GIVE_WAY_SECONDS = 0.001
# How many more objects than before make Python look for cyclic garbage. W3, W7.
COLLECT_AFTER_OBJECTS = 50_000
# How long a handler may compute while the scheduler, whose statement is done, waits. W3, W5d.
SWITCH_SECONDS = 0.002


class WorkerProcess(RegisteredProcess):
    """The worker of this process; `registered` is called with the id of each row that it has.

    `recycled` is called when it claims no more, so that another one may take its place. Told to
    stop twice, or once and `drain_seconds` ago, it puts back the jobs that execute.
    """

    kind = "worker"
    exit_code = 0

    def __init__(
        self,
        options: WorkerOptions,
        registered: Callable[[int], None] = lambda row: None,
        recycled: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            options.instance,
            queues=list(options.queues),
            excluded_queues=list(options.exclude),
            threads=options.threads,
        )
        self.options = options
        self._registered = registered
        self._recycled = recycled
        self._supervisors_stops = 0
        self._drain_ends = inf
        self._recycling = Recycling(options)
        self._drained: tuple[int, int] | None = None
        self._drained_at = steady()
        """How many results and handlers the drain has waited for lastly, and since when."""
        self._claimed = 0
        self.row_sync = RowSync(self.config)
        self._woken_at = 0.0
        self._takes_writers_together = takes_writers_together(self.using)
        self.batch = self.in_flight = CurrentBatch(self.config.silence_seconds)
        self.pool = ThreadPool(
            options.threads, self.batch, wake=self._wake, flush=self._flush, confirm=self._confirm
        )
        self._held = HeldThreads(self.name, self.using, self.pool, self.troubles)

    def _run(self) -> None:
        self.row_sync.start()
        self._begin()
        self.listener = Listener(self.worker, self.config, self._wake_up)
        self.scheduler = BatchScheduler(self.worker, self.pool)
        self.writer = ResultWriter(self.scheduler, self._wake)
        self.puller = Puller(self.config, self._wake_up)
        self.scheduler.on_hunger = self.puller.note
        threads = (self.pool, self.heartbeat, self.listener, self.writer, self.puller)
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
        self._announce(Worker.State.STOPPED)

    def _flush(self) -> None:
        """Let many results be written, beside the claims if the database can do both at once."""
        if self._takes_writers_together:
            self.writer.ask()
        else:
            self._wake()

    def _confirm(self, claim: Claim) -> bool:
        return self.scheduler.confirm(claim)

    def _wake_up(self, queue: str) -> None:
        """Probe at once, and often for a while: more jobs may come without waking workers."""
        self._woken_at = time.monotonic()
        if queue:
            self.scheduler.rotation.put_first(queue)
        self._wake()

    # Being told to stop

    def stop(self) -> None:
        """Stop after the executing jobs; called again, put them back."""
        self._bound_drain()
        super().stop()

    def stop_with_supervisor(self, stops: int) -> None:
        """Stop as often as the supervisor was told to, from any thread."""
        self._supervisors_stops = stops
        if stops:
            self._bound_drain()
            self._wake()

    @property
    def _stops(self) -> int:
        """A signal to the whole process group counts once, although it comes twice.

        It comes from the system, and from the supervisor, which got it too and passes it on. Each
        number is written by one thread only.
        """
        return max(self._own_stops, self._supervisors_stops)

    def _bound_drain(self) -> None:
        if self.options.drain_seconds is not None:
            self._drain_ends = min(self._drain_ends, steady() + self.options.drain_seconds)

    @property
    def _puts_back_handlers(self) -> bool:
        """Whether it is to put back the executing jobs."""
        return self._stops > 1 or steady() >= self._drain_ends

    @property
    def has_abandoned_handlers(self) -> bool:
        """Whether handlers that this worker has abandoned may still be running."""
        return self._puts_back_handlers or self._drains_in_vain

    @property
    def _drains_in_vain(self) -> bool:
        """Whether only handlers are left whose attempts are over, and that do not return."""
        return bool(self.batch) and self._held.ids.issuperset(self.batch.ids)

    # Working

    def _work(self) -> None:
        self._witness = Witness(self.config, self.heartbeat)
        self._firing = Firing(self.config)
        self._duties = Duties(self.using, self._make_duties(), self.troubles.tell)
        self._watchdog.doing = self._doing
        bound_waits(self.using)
        while not (self._stops or self._is_without_supervisor() or self._is_recycled()):
            idle = self._guarded(self._pass)
            if self.options.until_idle and idle:
                return
            if self._held.are_all():
                sentence = "no handler returns, so it ends; its supervisor is to start another"
                events.error("all_threads_held", sentence, worker=self.name)
                self.exit_code = ENDED_ITSELF
                return

    def _pass(self) -> bool:
        """Do one pass and wait; return whether there is nothing left to do now."""
        self._ensure_registered()
        was_empty = not self.batch
        try:
            self._claimed += self.scheduler.run_once()
        except Exception as error:
            if not (isinstance(error, DeclaredLostError) or is_outage(error)):
                self._do_duties(was_empty)  # they are not to blame
            raise
        kept_up = self._do_duties(was_empty)
        is_done = not kept_up and not self._witness.waits
        may_get_more = self.puller.waits or self.scheduler.rotation.has_more
        idle = was_empty and is_done and self.scheduler.found_nothing and not may_get_more
        if not (self.options.until_idle and idle):
            self._wait()
        return idle

    def _do_duties(self, was_empty: bool) -> int:
        everything = self.options.until_idle and was_empty
        return self._duties.run(all_of_it=everything, waits=bool(self.scheduler.moved))

    def _is_recycled(self) -> bool:
        """Whether it is to be recycled; jobs that have started still end."""
        reason = self._recycling.reason(self._claimed - self.pool.backlog)
        if reason:
            sentence = f"{reason}; it finishes what is running and exits"
            events.info("worker_recycled", sentence, worker=self.name)
            self._recycled()
        return bool(reason)

    def _make_duties(self) -> list[Duty]:
        witness, scheduler = self._witness, self.scheduler
        beat, often = self.config.heartbeat_seconds, often_seconds(self.config)
        look, release = beat / LOOKS_IN_A_BEAT, scheduler.release_unconfirmed
        return [
            self._duty_of_overdue_jobs(often),
            Duty("look_at_threads", often, self._held.look),
            Duty("declare_schedules", beat, self.row_sync.declare),
            Duty("fire_schedules", often, self._firing.run, lambda: self._firing.due_at),
            Duty("retire_schedules", beat, self.row_sync.retire),
            self._duty_of_companions(often),
            *duties_of_instance(self.config, self.worker),
            Duty("recover_lost", look, witness.recover_lost, left_alone=witness.not_recovered),
            Duty("release_unconfirmed", beat, release, left_alone=scheduler.not_released),
        ]

    def _duty_of_companions(self, often: float) -> Duty:
        steps = self.scheduler.steps
        sweep = partial(companions.sweep, self.config, steps)
        return Duty("sweep_companions", often, sweep, left_alone=steps)

    def _duty_of_overdue_jobs(self, often: float) -> Duty:
        witness = self._witness
        return Duty(
            "time_out_overdue", often, witness.time_out_overdue, left_alone=witness.not_timed_out
        )

    def _wait(self) -> None:
        scheduler, pool = self.scheduler, self.pool
        if scheduler.contended:
            self._sleep(self.contended_pause())
        elif scheduler.moved and self.batch.has_many:
            return
        elif not (scheduler.moved and pool.free_slots() + pool.prefetch_slots()):
            self._sleep(FLUSH_SECONDS if len(self.batch) > pool.threads else self._poll_seconds())
        elif not scheduler.rotation.has_more:
            pool.await_done(GIVE_WAY_SECONDS)

    def contended_pause(self) -> float:
        """Return how long to give way: longer for a lock that lasts, if nothing else goes on."""
        pause = BUSY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        if self.scheduler.moved:
            return pause
        waited = self.scheduler.contended_seconds * BUSY_SHARE
        return max(pause, min(waited, LISTENING_POLL_SECONDS, self._poll_seconds()))

    def _poll_seconds(self) -> float:
        """Return how long to wait for something new before looking again."""
        idle = time.monotonic() - self._woken_at
        if idle < LIVELY_SECONDS:
            return max(LIVELY_POLL_SECONDS, idle / 4)  # sooner than any schedule needs
        usual = LISTENING_POLL_SECONDS if self.listener.is_listening else POLL_SECONDS
        pause = (self.options.interval or usual) * random.uniform(0.75, 1.0)  # noqa: S311 - no secret
        return max(0.0, min(pause, self._firing.wake_at - time.monotonic()))

    def _doing(self) -> dict[str, str]:
        """Return the duty or the step of the pass that is being done, as fields of the log."""
        if self._duties.doing:
            return {"duty": self._duties.doing}
        step, queues = self.scheduler.doing
        names = {"queue": ",".join(queue.name for queue in queues)} if queues else {}
        return {"step": step, **names}

    def _sleep(self, seconds: float) -> None:
        super()._sleep(min(seconds, max(0.0, self._drain_ends - steady())))

    def _back_off_after(self, error: Exception) -> None:
        self._duties.forget()
        super()._back_off_after(error)

    def _is_without_supervisor(self) -> bool:
        """Whether the supervisor that started this process is gone."""
        return bool(self.options.parent) and os.getppid() != self.options.parent

    # Belonging

    def _register(self) -> None:
        self._row["schedules"] = declared.names(self.config.name)
        super()._register()
        self._registered(self.worker.pk)
        self.row_sync.registered(self.worker)
        events.info(
            "worker_started",
            worker=self.name,
            queues=",".join(self.options.queues) or "all",
            excluded=",".join(self.options.exclude) or "none",
            threads=self.options.threads,
        )
        tell_of_start(self.worker)

    def _register_anew(self) -> None:
        """Others get the jobs that have not started; results count if their jobs are untouched."""
        self.batch.discard(self.pool.take_backlog())
        self._register()
        self.scheduler.worker = self.worker

    # Stopping

    def _drain(self) -> None:
        self._announce(Worker.State.STOPPING)
        self._release(self.pool.take_backlog())
        self.writer.close()
        if self.batch:
            self._guarded(self._persist)  # an outage may be over: nothing is given up untried
        # Else a lone worker would wait without an end for handlers that hang.
        look = Duty("look_at_threads", OFTEN_SECONDS, self._held.look)
        overdue = self._duty_of_overdue_jobs(OFTEN_SECONDS)
        duties = Duties(self.using, [overdue, look], self.troubles.tell)
        while self.batch and not (self.has_abandoned_handlers or self._is_cut_off()):
            self._try(self._persist)
            self._try(lambda: bool(duties.run(all_of_it=False, waits=False)))
        if self._is_cut_off():
            self._report_unwritten()
        self._try(self._release_unconfirmed)
        if not self._drains_in_vain:
            self._put_back(self.pool.executing())
        self._try(self._persist)

    def _release_unconfirmed(self) -> bool:
        """Release what it owns without knowing: others would take it for started, and so lost."""
        return bool(self.scheduler.release_unconfirmed())

    def _put_back(self, claims: list[Claim]) -> None:
        """Put back the executing jobs; the results of their handlers are dropped."""
        if claims:
            sentence = "they were still running when it had to stop"
            jobs = [claim.id for claim in claims]
            events.warning("jobs_put_back", sentence, worker=self.name, jobs=jobs)
        self._release(claims)

    def _try(self, step: Callable[[], bool]) -> None:
        """Do a step of the end, unless that would only delay the end."""
        if not self._is_cut_off():
            self._guarded(step)

    def _is_cut_off(self) -> bool:
        """Whether nothing executes, and nothing could be written for so long that it is lost.

        The database is away, or somebody keeps the rows or a table locked.
        """
        executing = len(self.pool.executing())
        state = len(self.batch), executing
        if state != self._drained:
            self._drained, self._drained_at = state, steady()
        return not executing and self._standing_seconds >= self.config.silence_seconds

    @property
    def _standing_seconds(self) -> float:
        """For how long the drain has not moved."""
        return steady() - self._drained_at

    def _report_unwritten(self) -> None:
        """Log the jobs whose results could not be written; others run them again."""
        events.error(
            "worker_cut_off",
            "it stops; the results of these jobs could not be written",
            worker=self.name,
            away_seconds=round(self._standing_seconds),
            jobs=self.batch.ids,
        )

    def _persist(self) -> bool:
        if self._is_away:
            self.heartbeat.beat()  # without results there is nothing else that asks the database
        self.scheduler.look_after_reservations()  # who is killed now has lost what has started
        self.scheduler.persist_batch()
        if self.batch:
            self._sleep(FLUSH_SECONDS)
        return True

    def _release(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.batch.deliver(Released(claim, "Released: the worker stopped"))


def _tune_garbage_collection() -> None:
    """Look for cyclic garbage less often, and not among the objects loaded at the start.

    A batch makes thousands of objects, none of them in a cycle; looking through them took a
    quarter of a busy worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
