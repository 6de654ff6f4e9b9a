"""A consumer process: receives messages, commits them to the database, then acknowledges them."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from django.db import Error, connections

from hipq_django.answers.intake import Intake
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.errors import in_one_line
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Worker
from hipq_django.processes.backoff import BackOff
from hipq_django.processes.child import leave
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.own_connections import adopt
from hipq_django.processes.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.sources import MessageSource, Received

logger = logging.getLogger("hipq_django")

RECEIVE_SECONDS = 1.0
"""How long a source may wait for a message; a stop is noticed after that."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Which source of which instance is read."""

    source: str
    instance: str = "default"


class ConsumerProcess:
    """The consumer of this process.

    A message is acknowledged after the transaction that stored it, so it is delivered at least
    once; the ids of messages make the second time a no-op. While the database is away messages
    stay in flight, and nothing is received.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        self.config = get_instance(options.instance)
        self.using = self.config.database
        self.settings = self.config.source(options.source)
        self._intake = Intake(self.config, self.settings)
        self._source: MessageSource | None = None
        self._in_flight: list[Received] = []
        self._stops = 0
        self._stopped: SimpleQueue[None] = SimpleQueue()
        self._back_off = BackOff()
        self.name = f"{socket.gethostname()}:{os.getpid()}"

    def run(self) -> None:
        """Run until stopped; raise `ConfigurationError` where the source cannot be made so."""
        watchdog = Watchdog(self.name, self.config.silence_seconds)
        watchdog.open()
        try:
            self._run(watchdog)
        finally:
            watchdog.close()

    def _run(self, watchdog: Watchdog) -> None:
        adopt(self.using)
        self._register()
        self._heartbeat = Heartbeat(self.worker, lambda: len(self._in_flight), lambda: None)
        watchdog.follow(self._heartbeat)
        self._heartbeat.open()
        try:
            while not self._stops:
                self._step()
        finally:
            self._close_source()
            self._heartbeat.close()
            self._deregister()

    def stop(self) -> None:
        """Stop after what is in flight; called again, leave at once: that is delivered again."""
        self._stops += 1
        # Also called by signal handlers: an Event could deadlock with the wait it interrupts.
        self._stopped.put(None)
        if self._stops > 1:
            leave()

    # Working

    def _step(self) -> None:
        """Receive, store, acknowledge; what was not acknowledged is delivered again."""
        try:
            source = self._source = self._source or self.settings.open()
            received = source.receive(self.settings.batch_size, RECEIVE_SECONDS)
            self._back_off.reset()
            self._in_flight = list(received)
            if received and self._store():
                source.acknowledge(received)
        except ConfigurationError:
            raise
        except Exception as error:
            self._lose_source(error)
        self._in_flight = []

    def _store(self) -> bool:
        """Store what is in flight; return False where that had to be given up for a stop.

        All at once; where that fails one by one, until each is stored: one that the database
        refuses must not keep the others from it.
        """
        if self._guarded(lambda: self._intake.take_all(self._in_flight), wait=False):
            return True
        while self._in_flight:
            if self._guarded(lambda: self._intake.take_one(self._in_flight[0]), wait=True):
                del self._in_flight[0]
            elif self._stops:
                logger.warning(
                    "source=%s event=given_up messages=%s: stopped while the database was away; "
                    "the broker delivers them again",
                    self.settings.name, len(self._in_flight),
                )  # fmt: skip
                return False
        return True

    def _guarded(self, store: Callable[[], None], *, wait: bool) -> bool:
        """Run a step with the database; return whether it was done, else after a wait if asked."""
        try:
            self._ensure_registered()
            store()
        except Exception as error:
            connections[self.using].close()
            seconds = self._back_off.next_seconds() if wait else 0.0
            logger.warning(
                "source=%s back_off_seconds=%.2f messages=%s database: %s",
                self.settings.name, seconds, len(self._in_flight), in_one_line(error),
            )  # fmt: skip
            self._sleep(seconds)
            return False
        self._back_off.reset()
        return True

    def _sleep(self, seconds: float) -> None:
        if seconds and not self._stops:
            with suppress(Empty):
                self._stopped.get(timeout=seconds)

    # The source

    def _lose_source(self, error: Exception) -> None:
        self._close_source()
        seconds = self._back_off.next_seconds()
        logger.warning(
            "source=%s back_off_seconds=%.2f event=lost %s: %s",
            self.settings.name, seconds, type(error).__name__, in_one_line(error),
        )  # fmt: skip
        self._sleep(seconds)

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is None:
            return
        try:
            source.close()
        except Exception as error:  # it may be broken; nothing depends on its end
            logger.info("source=%s event=close_failed %r", self.settings.name, error)

    # Belonging

    def _register(self) -> None:
        now = clock.now(self.using)
        self.worker = Worker.objects.using(self.using).create(
            instance=self.config.name,
            name=self.name,
            source=self.settings.name,
            heartbeat_seconds=self.config.heartbeat_seconds,
            heartbeat_time=now,
            create_time=now,
        )
        logger.info("consumer=%s event=started source=%s", self.worker.name, self.settings.name)

    def _ensure_registered(self) -> None:
        """After a long silence the others may have given this one up: it goes on as a new one."""
        if self._heartbeat.is_fresh() or self._heartbeat.beat():
            return
        logger.error("consumer=%s event=given_up_by_others", self.worker.name)
        self._register()
        self._heartbeat.begin_anew(self.worker)

    def _deregister(self) -> None:
        live = Worker.objects.using(self.using).filter(pk=self.worker.pk, state__in=Worker.LIVE)
        try:
            live.update(state=Worker.State.STOPPED)
        except Error as error:
            logger.warning("consumer=%s sign off: %s", self.worker.name, in_one_line(error))
        logger.info("consumer=%s event=stopped", self.worker.name)
