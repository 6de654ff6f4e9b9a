"""Starts worker processes, replaces those that die, and tells them to stop.

Imports no models: a child reads it before Django's set-up.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import django

from hipq_django import events
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.stop_signals import (
    end_at_the_second,
    end_in_any_case,
    held_back,
    leave,
    note_told,
    on_stop_signals,
    take_held_back,
)

RESTART_SECONDS = 1.0
"""A process that dies again at once is not replaced more often than this."""

MOST_AT_ONCE = 2
"""How many times `processes` there are at most, with those that are recycled and still execute."""

DECLARE_SECONDS = 2.0
"""How long the supervisor waits at its end until the death of a process is written."""

ENDED = 0
"""What a child says last if it ends as it should; any end gives it an exit code."""

RECYCLED = -1
"""What a child says once it claims no more, and another one is to take its place."""

_CONTEXT = multiprocessing.get_context("spawn")


def run_child(options: WorkerOptions, supervisor: Connection) -> None:
    """Run one worker in its own process; tell the supervisor each row that it registers."""
    orders = _Orders(supervisor, options.drain_seconds)
    django.setup()
    from hipq_django.processes.start_up import serving, set_up_logging
    from hipq_django.processes.worker import WorkerProcess

    set_up_logging(options.verbosity)

    def tell(word: int) -> None:
        with suppress(OSError):  # who is gone need not be told
            supervisor.send(word)

    with serving(options.instance, options.shard):
        process = WorkerProcess(options, registered=tell, recycled=lambda: tell(RECYCLED))
        orders.let_stop(process.stop_with_supervisor)
        end_at_the_second(options.drain_seconds)
        on_stop_signals(process.stop)
        take_held_back()
        process.run()
        if not process.exit_code:
            tell(ENDED)
        leave(process.exit_code, at_once=process.has_abandoned_handlers)


class _Orders:
    """Hears from the supervisor how often a child was told to stop; the second time ends it.

    It has its own thread from the beginning, because the project's own start may hang.
    """

    def __init__(self, supervisor: Connection, drain_seconds: float | None) -> None:
        self._supervisor = supervisor
        self._drain_seconds = drain_seconds
        self._stops = 0
        self._stop: Callable[[int], None] = lambda stops: None
        threading.Thread(target=self._hear, name="hipq-orders", daemon=True).start()

    def let_stop(self, stop: Callable[[int], None]) -> None:
        """Call `stop` with how often it shall stop, from now on."""
        self._stop = stop
        stop(self._stops)

    def _hear(self) -> None:
        with suppress(EOFError, OSError):  # it is gone, which the worker sees by itself
            while self._stops < 2 and self._supervisor.poll(self._patience):
                self._stops = self._supervisor.recv()
                self._stop(self._stops)
                note_told(self._drain_seconds)
            end_in_any_case()

    @property
    def _patience(self) -> float | None:
        return self._drain_seconds if self._stops else None


@dataclass(slots=True)
class _Child:
    """A worker process, and what it has said."""

    options: WorkerOptions
    process: SpawnProcess
    line: Connection
    """The connection by which it reports, and hears how often it was told to stop."""
    rows: list[int] = field(default_factory=list)
    """The ids of the rows of workers under which it has registered."""
    has_ended_well: bool = False
    """Whether it ended as it should: told to, idle or recycled. Otherwise it died."""
    is_recycled: bool = False
    """Whether it claims no more, and only finishes what it executes."""
    is_replaced: bool = False
    """Whether another one has taken its place."""

    def listen(self) -> None:
        """Read its new messages."""
        try:
            while self.line.poll():
                word = self.line.recv()
                if word == ENDED:
                    self.has_ended_well = True
                elif word == RECYCLED:
                    self.is_recycled = True
                else:
                    self.rows.append(word)
        except (EOFError, OSError):
            return  # it has said all

    def tell(self, stops: int) -> None:
        """Tell it how often it was told to stop; hearing that twice does no harm."""
        with suppress(OSError):  # it has just ended
            self.line.send(stops)


class Supervisor:
    """Keeps `processes` worker processes running until it is stopped; so many for each shard."""

    def __init__(
        self, options: WorkerOptions, processes: int, shards: Sequence[str] = ("",)
    ) -> None:
        parent = os.getpid()
        each = [replace(options, parent=parent, shard=shard) for shard in shards]
        self._options = [options for options in each for _ in range(processes)]
        self._children: list[_Child] = []
        self._declaring: list[threading.Thread] = []
        self._stops = 0

    def run(self) -> None:
        """Run until every child has ended."""
        for options in self._options:
            self._start(options)
        while self._children:
            wait([child.process.sentinel for child in self._children], timeout=RESTART_SECONDS)
            self._replace_dead()
        for thread in self._declaring:
            thread.join(DECLARE_SECONDS)

    def stop(self) -> None:
        """Tell the children to stop.

        By a message, not a signal: Ctrl-C, or a signal to the whole process group, reaches them
        too.
        """
        self._stops += 1
        for child in self._children:
            child.tell(self._stops)

    def _replace_dead(self) -> None:
        for child in list(self._children):
            is_alive = child.process.is_alive()
            child.listen()
            if not is_alive:
                self._bury(child)
            elif child.is_recycled and len(self._children) < MOST_AT_ONCE * len(self._options):
                self._replace(child)

    def _bury(self, child: _Child) -> None:
        self._children.remove(child)
        self._declaring = [thread for thread in self._declaring if thread.is_alive()]
        child.line.close()
        if not child.has_ended_well:
            self._note_death(child)
            if not self._stops:
                time.sleep(RESTART_SECONDS)
        if child.is_recycled or not child.has_ended_well:
            self._replace(child)

    def _replace(self, child: _Child) -> None:
        """Start another one in its place, once; it may go on with what it executes."""
        if not (child.is_replaced or self._stops):
            child.is_replaced = True
            self._start(child.options)

    def _note_death(self, child: _Child) -> None:
        """Log that it died, and let others take its jobs over at once."""
        from hipq_django.processes.registered import declare_lost

        events.error(
            "process_died",
            "it was told to stop" if self._stops else "another one takes its place",
            shard=child.options.shard or None,
            pid=child.process.pid,
            exit_code=child.process.exitcode,
        )
        # In a separate thread, because the database may be at fault.
        place = child.options.instance, child.options.shard
        declaring = threading.Thread(
            target=declare_lost, args=[*place, list(child.rows)], daemon=True
        )
        declaring.start()
        self._declaring.append(declaring)

    def _start(self, options: WorkerOptions) -> None:
        line, childs_end = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=run_child, args=(options, childs_end))
        resource_tracker.ensure_running()  # else it is started with the first, and takes signals
        with held_back():
            process.start()
        childs_end.close()
        child = _Child(options, process, line)
        self._children.append(child)
        if self._stops:  # told before the child was among those that are
            child.tell(self._stops)
