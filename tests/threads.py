"""A worker's threads without the process that keeps them going."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hipq_django.processes.pool import ThreadPool
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.transitions.values import Claim
from tests.factories import WorkerFactory


class Crew:
    """Threads and a scheduler whose passes a test makes one by one."""

    def __init__(self, threads: int, flush: Callable[[], None] = lambda: None) -> None:
        self.batch = CurrentBatch()
        self.pool = ThreadPool(
            threads, self.batch, wake=lambda: None, flush=flush, confirm=self._confirm
        )
        self.scheduler = BatchScheduler(WorkerFactory.create(), self.pool)

    def _confirm(self, claim: Claim) -> bool:
        return self.scheduler.confirm(claim)


@contextmanager
def working(crew: Crew) -> Iterator[Crew]:
    """Let the threads run for as long as the context lasts."""
    crew.pool.open()
    try:
        yield crew
    finally:
        crew.pool.close()
