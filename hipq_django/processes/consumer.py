"""A consumer process: receives messages, commits them to the database, then acknowledges them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from hipq_django import events
from hipq_django.answers.intake import Intake
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.clock import steady
from hipq_django.database.errors import in_one_line
from hipq_django.database.isolation import LEAST_PAUSE, Isolation
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Worker
from hipq_django.processes.connections import bound_waits, look_after_own, renew_broken
from hipq_django.processes.registered import RegisteredProcess
from hipq_django.processes.stop_signals import leave
from hipq_django.sources import MessageSource, Received

RECEIVE_SECONDS = 1.0
"""How long a source may wait for a message; a stop is noticed after that."""


class ConsumerProcess(RegisteredProcess):
    """The consumer of this process, for one source of an instance.

    A message is acknowledged after the transaction that stored it, so it is delivered at least
    once; the ids of messages make the second time a no-op. While the database is away, or somebody
    has locked the job of a message, messages stay in flight, and nothing is received.
    """

    kind = "consumer"

    def __init__(self, source: str, instance: str = DEFAULT) -> None:
        super().__init__(instance, source=source)
        self.settings = self.config.source(source)
        self._intake = Intake(self.config, self.settings)
        self._source: MessageSource | None = None
        self.in_flight: list[Received] = []

    def _run(self) -> None:
        self._begin()
        for alias in self.config.shards:  # answers go to all of them
            look_after_own(alias)
            bound_waits(alias)
        self.heartbeat.open()
        try:
            while not self._stops:
                self._step()
        finally:
            self._close_source()
            self.heartbeat.close()
            self._announce(Worker.State.STOPPED)

    def stop(self) -> None:
        """Stop after the messages in flight; called again, exit at once: they are redelivered."""
        super().stop()
        if self._stops > 1:
            leave()

    # Working

    def _step(self) -> None:
        """Receive, store, acknowledge; unacknowledged messages are delivered again."""
        self._began_pass = steady()
        try:
            renew_broken(self.using)
            source = self._source = self._source or self.settings.open()
            received = source.receive(self.settings.batch_size, RECEIVE_SECONDS)
            self._back_off.reset()
            self.in_flight = list(received)
            if not received:
                self._guarded(self._ensure_registered)
            elif self._store():
                source.acknowledge(received)
        except ConfigurationError:
            raise
        except Exception as error:
            self._lose_source(error)
        self.in_flight = []

    def _store(self) -> bool:
        """Store the messages in flight; return False if a stop came first.

        All at once; a message that cannot be stored stops no other.
        """
        received, source = self.in_flight, self.settings.name
        left = dict(enumerate(received))
        left_alone = Isolation[int](
            "consume", lambda n: {"message_id": received[n].message_id, "source": source}
        )
        while left:
            free = [n for n in left if n not in left_alone.ids]
            self._guarded(partial(self._store_some, left, free, left_alone))
            if left and self._stops:
                sentence = "stopped before they could be stored; the broker delivers them again"
                events.warning("messages_given_up", sentence, source=source, messages=len(left))
                return False
            if left:
                self._sleep(LEAST_PAUSE)
        return True

    def _store_some(
        self, left: dict[int, Received], free: Sequence[int], left_alone: Isolation[int]
    ) -> None:
        """Store messages, and take out of what is `left` those that are committed."""
        self._ensure_registered()

        def store(some: Sequence[int]) -> int:
            self._intake.take_all([left[n] for n in some])
            return len([left.pop(n) for n in some])

        def keep(n: int, error: Exception) -> None:
            self._intake.keep_refused(left[n], error)
            del left[n]

        left_alone.move(free, store, keep)

    def _sleep(self, seconds: float) -> None:
        if not self._stops:
            super()._sleep(seconds)

    # The source

    def _lose_source(self, error: Exception) -> None:
        self._close_source()
        seconds = self._back_off.next_seconds()
        events.warning(
            "source_lost",
            f"{type(error).__name__}: {in_one_line(error)}",
            source=self.settings.name,
            seconds=round(seconds, 2),
        )
        self._sleep(seconds)

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            with suppress(Exception):  # it may be broken; nothing depends on its end
                source.close()

    # Belonging

    def _register(self) -> None:
        super()._register()
        events.info("consumer_started", consumer=self.name, source=self.settings.name)
