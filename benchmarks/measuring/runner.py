"""What a system has to be able to do, and the entry point of its runner."""

from __future__ import annotations

import asyncio
import json
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    Figures = Iterator[tuple[str, float]]
    Measurement = Callable[[Any, dict[str, Any]], Figures]


class Runner(ABC):
    """How one system is used; what is measured is the same for all."""

    def prepare(self) -> None:  # noqa: B027 - many need nothing
        """Make tables and what else must be there before the first job."""

    @abstractmethod
    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job and return when it is committed."""

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Enqueue many jobs as fast as the system can; one by one where it knows no other way."""
        self.enqueue_each(kind, numbers)

    def enqueue_each(self, kind: str, numbers: Iterable[int]) -> None:
        """Enqueue jobs one after the other, each committed before the next."""
        for number in numbers:
            self.enqueue(kind, number)

    def start_pipelines(self, numbers: Sequence[int]) -> None:
        """For each number let three steps that do nothing follow each other."""
        raise NotImplementedError

    def start_chain(self, steps: int) -> None:
        """Let so many steps, which stamp their numbers, follow each other."""
        raise NotImplementedError

    @abstractmethod
    def unfinished(self) -> int:
        """Return how many jobs are not recorded as done."""

    def disconnect(self) -> None:  # noqa: B027 - few have something to close
        """Close connections: what they did is counted when they end. It may be called twice."""

    @abstractmethod
    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command of one worker.

        `concurrency` is how many jobs it is to execute at a time; None means what is best for
        jobs that do nothing.
        """

    def worker_environment(self) -> Mapping[str, str]:
        """Return variables that the worker's environment needs."""
        return {}

    def schedule_ticks(self) -> None:
        """Let a job be due each second, which stamps that second."""
        raise NotImplementedError

    def schedule_many(self, number: int, due: int) -> None:
        """Let so many schedules be due at this second, each a job that does nothing."""
        raise NotImplementedError

    def made_from_schedules(self, due: int) -> tuple[int, float]:
        """Return how many jobs were made since that second, and when the last of them was."""
        raise NotImplementedError

    def scheduling_worker(self) -> list[str]:
        """Return the command of a worker that knows these schedules, and runs their jobs."""
        return self.worker()

    def ticking_worker(self) -> list[str]:
        """Return the command of a worker that runs these jobs, with all that makes them."""
        return self.worker()

    def idle_worker(self) -> list[str]:
        """Return the command of a worker that is to start a single job soon."""
        return self.worker()


class AsyncRunner(Runner):
    """A system that is used from asyncio; connections belong to the one loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def wait_for(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end."""
        self._loop.run_until_complete(coroutine)

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        self.wait_for(self.enqueue_async(kind, number))

    def enqueue_each(self, kind: str, numbers: Iterable[int]) -> None:
        """Enqueue one after the other without leaving the loop."""

        async def each() -> None:
            for number in numbers:
                await self.enqueue_async(kind, number)

        self.wait_for(each())

    @abstractmethod
    async def enqueue_async(self, kind: str, number: int) -> None:
        """Enqueue one job and return when it is committed."""


def note(text: str) -> None:
    """Say what a reader of the figures has to know."""
    print(json.dumps({"note": text}), flush=True)


def main(runner: Runner, own: Mapping[str, Measurement] | None = None) -> None:
    """Do the measurement named on the command line; print one line of JSON for each figure.

    `python -m benchmarks.peers.huey drain '{"jobs": 2000}'`. `own` are measurements that only this
    system knows.
    """
    from benchmarks.measuring.measurements import MEASUREMENTS

    measurement, sizes = {**MEASUREMENTS, **(own or {})}[sys.argv[1]], json.loads(sys.argv[2])
    runner.prepare()
    try:
        for figure, value in measurement(runner, sizes):
            print(json.dumps({"figure": figure, "value": value}), flush=True)
    finally:
        runner.disconnect()
