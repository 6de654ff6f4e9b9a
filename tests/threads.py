"""A worker's threads without the process that keeps them going."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from django.db import connection

from hipq_django.processes.pool import ThreadPool
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.transitions import values
from hipq_django.transitions.values import Claim
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.factories import WorkerFactory
from tests.faults import breaking


class Crew:
    """Threads and a scheduler whose passes a test makes one by one."""

    def __init__(
        self,
        threads: int,
        flush: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.batch = CurrentBatch()
        self.pool = ThreadPool(threads, self.batch, wake=wake, flush=flush, confirm=self._confirm)
        self.scheduler = BatchScheduler(WorkerFactory.create(), self.pool)
        self.breaks_at = 0
        """At which moment of asking whether a claim holds the connection breaks; 0: at none."""
        self.broke = ""
        """Where it last did."""

    def _confirm(self, claim: Claim) -> bool:
        with breaking(self.breaks_at) as faults:
            try:
                return self.scheduler.confirm(claim)
            finally:
                if faults.place:
                    self.broke = faults.place
                    connection.close()  # so it would be


AnyCrew = TypeVar("AnyCrew", bound=Crew)


@contextmanager
def working(crew: AnyCrew) -> Iterator[AnyCrew]:
    """Let the threads run for as long as the context lasts; what has not started then never does.

    A thread that went on would run what the next test declares under the same name.
    """
    before = set(threading.enumerate())
    crew.pool.open()
    threads = set(threading.enumerate()) - before
    try:
        yield crew
    finally:
        crew.pool.take_backlog()
        crew.pool.close()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)


@contextmanager
def reservations_last() -> Iterator[None]:
    """Let what is claimed start without another look, however slow the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "RESERVATION_SECONDS", PATIENCE_SECONDS)
        yield
