"""A process with a row by which the others know it: it registers, beats, and deregisters."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from django.db import Error, connections

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import DeclaredLostError, in_one_line, is_outage, said_of
from hipq_django.database.isolation import RowsLeftAloneError
from hipq_django.domain.serialization import error_of, storable_text
from hipq_django.job_types.registry import has_sensitive
from hipq_django.models import Worker
from hipq_django.processes.connections import look_after_own, renew_broken
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.outage import BackOff
from hipq_django.processes.watchdog import Watchdog


class Troubles:
    """What fails or hangs in a process at present: its next heartbeats write it into its row.

    Since when, and why, by what is in trouble, such as a duty. Any thread may call any method.

    The reason is for operators: it quotes nothing where job types have sensitive fields, because
    nobody knows which values an error is about.
    """

    def __init__(self, instance: str, using: str) -> None:
        self._instance = instance
        self._using = using
        self._found: dict[str, dict[str, Any]] = {}

    @property
    def shown(self) -> dict[str, dict[str, Any]]:
        """What the row says."""
        return dict(self._found)

    def note(self, name: str, reason: str, **more: Any) -> None:
        """Note that something is in trouble; it has been so since the first of these notes."""
        known = self._found.get(name)
        since = known["since"] if known else clock.now(self._using).isoformat()
        self._found[name] = {"since": since, "reason": storable_text(reason), **more}

    def end(self, name: str) -> None:
        """Note that it is well again, if it was not."""
        self._found.pop(name, None)

    def tell(self, name: str, error: Exception | None) -> None:
        """Note how something ended this time."""
        if error is None:
            self.end(name)
        else:
            self.note(name, self._reason(error))

    def _reason(self, error: Exception) -> str:
        if isinstance(error, RowsLeftAloneError):
            return f"{error}, see the worker's log"
        if has_sensitive(self._instance):
            return f"{type(error).__name__}, see the worker's log"
        return error_of(error).partition("\n")[0]  # the rest may quote a row


class RegisteredProcess(ABC):
    """What workers and consumers have in common."""

    kind: ClassVar[str]
    """What the log calls such a process."""
    in_flight: Sized
    """The jobs or messages that it has in flight."""

    def __init__(self, instance: str, **row: Any) -> None:
        self.config = get_instance(instance)
        self.using = self.config.database
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._row = row
        self._own_stops = 0
        self._awake: SimpleQueue[None] = SimpleQueue()
        self._back_off = BackOff()
        self._is_away = False
        """Whether the database is away."""
        self._last_answer = steady()
        """When the database answered last."""
        self.troubles = Troubles(instance, self.using)
        self._began_pass = steady()
        self._is_asleep = False
        self._watchdog = Watchdog(self.name, self.config.silence_seconds, self._pass_sign)

    def run(self) -> None:
        """Run until stopped or, if that was asked for, until there is nothing left to do."""
        self._watchdog.open()
        try:
            look_after_own(self.using)
            self._run()
        finally:
            self._watchdog.close()

    @abstractmethod
    def _run(self) -> None:
        """Register, work, deregister."""

    def stop(self) -> None:
        """Stop after everything in flight; called again, release that too."""
        self._own_stops += 1
        self._wake()

    @property
    def _stops(self) -> int:
        """How often it was told to stop."""
        return self._own_stops

    def _wake(self) -> None:
        # Also called by signal handlers: an Event could deadlock with the wait it interrupts.
        self._awake.put(None)

    def _sleep(self, seconds: float) -> None:
        """Wait for so long, or until woken."""
        self._is_asleep = True
        with suppress(Empty):
            self._awake.get(timeout=seconds)
            while True:
                self._awake.get_nowait()
        self._is_asleep = False

    def _pass_sign(self) -> object:
        """Return a value that stops changing while a pass hangs."""
        return object() if self._is_asleep else self._began_pass

    @property
    def _named(self) -> dict[str, Any]:
        """The field of the log that identifies it."""
        return {self.kind: self.name}

    # Errors

    def _guarded(self, step: Callable[[], object]) -> bool:
        """Run a step; after an error back off, then go on. Return False if it failed."""
        self._began_pass = steady()
        try:
            renew_broken(self.using)
            done = bool(step())
        except Exception as error:
            self._back_off_after(error)
            return False
        self._back_off.reset()
        self._note_answer()
        self.troubles.end("pass")
        return done

    def _note_answer(self) -> None:
        if self._is_away:
            seconds = round(steady() - self._last_answer, 1)
            events.warning(
                "database_back", "the database is back", **self._named, away_seconds=seconds
            )
        self._is_away, self._last_answer = False, steady()

    def _back_off_after(self, error: Exception) -> None:
        """Note what an error means for the whole process, and wait before the next step."""
        if isinstance(error, DeclaredLostError):
            self.heartbeat.note_lost()
        elif is_outage(error):
            self._is_away = True
        else:
            self.troubles.tell("pass", error)
            if not isinstance(error, Error):
                events.error("pass_failed", **self._named, exception=error)
        connections[self.using].close()
        seconds = self._back_off.next_seconds()
        about = {**self._named, "in_flight": len(self.in_flight), "seconds": round(seconds, 2)}
        events.warning("back_off", said_of(error), **about)
        self._sleep(seconds)

    # Belonging

    def _begin(self) -> None:
        """Register, and start the heartbeat."""
        self._register()
        self.heartbeat = Heartbeat(self.worker, self._told_by_beats, self._wake)
        self._watchdog.heartbeat = self.heartbeat

    def _told_by_beats(self) -> Mapping[str, Any]:
        return {"executing": len(self.in_flight), "troubles": self.troubles.shown}

    def _register(self) -> None:
        now = clock.now(self.using)
        self.worker = Worker.objects.using(self.using).create(
            instance=self.config.name,
            name=self.name,
            heartbeat_seconds=self.config.heartbeat_seconds,
            heartbeat_time=now,
            create_time=now,
            **self._row,
        )

    def _ensure_registered(self) -> None:
        """After a long silence, or an outage, claim nothing before a beat is written.

        A process that was stopped, or cut off, may have been declared lost; it goes on as a new
        one.
        """
        if (self.heartbeat.is_fresh() and not self._is_away) or self.heartbeat.beat():
            return
        events.error("declared_lost", **self._named)
        self._register_anew()
        self.heartbeat.begin_anew(self.worker)

    def _register_anew(self) -> None:
        self._register()

    def _announce(self, state: Worker.State) -> None:
        """Write and log how it ends."""
        self.worker.state = state
        self._try(lambda: bool(self.worker.live_row().update(state=state)))
        events.info(f"{self.kind}_{state.value}", **self._named)

    def _try(self, step: Callable[[], bool]) -> None:
        """Do a step of the end, which comes all the same if it fails."""
        try:
            step()
        except Error as error:
            events.warning("not_deregistered", in_one_line(error), **self._named)


def declare_lost(instance: str, shard: str, rows: Sequence[int]) -> None:
    """Mark these workers of a shard lost, unless they ended; others take their jobs over.

    It tries once: if the database is away, workers that find them silent do it later.
    """
    using = shard or get_instance(instance).database
    look_after_own(using)
    live = Worker.objects.using(using).filter(pk__in=rows, state__in=Worker.LIVE)
    try:
        lost = [worker.name for worker in live]
        live.update(state=Worker.State.LOST)
        for name in lost:
            events.error("worker_lost", "its process died; its jobs are taken over", worker=name)
    except Error as error:
        events.warning("not_declared_lost", in_one_line(error), rows=list(rows))
    finally:
        connections.close_all()
