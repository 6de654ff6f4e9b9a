"""The runner of Chancy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from chancy import Job

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import AsyncRunner, main
from benchmarks.peers.chancy.jobs import PATH, application

if TYPE_CHECKING:
    from collections.abc import Sequence

NOOP_CONCURRENCY = 1_000


class ChancyRunner(AsyncRunner):
    """Chancy by its application."""

    def prepare(self) -> None:
        """Migrate."""
        self._chancy = application()
        self.wait_for(self._migrate())

    async def _migrate(self) -> None:
        await self._chancy.pool.open()
        await self._chancy.migrate()

    async def enqueue_async(self, kind: str, number: int) -> None:
        """Push one job."""
        await self._chancy.push(_job(kind, number))

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Push all in one call."""
        self.wait_for(self._push_many([_job(kind, number) for number in numbers]))

    async def _push_many(self, jobs: list[Job]) -> None:
        async for _ in self._chancy.push_many(jobs):
            pass

    def unfinished(self) -> int:
        """Count what is not recorded as succeeded."""
        return ask("SELECT count(*) FROM chancy_jobs WHERE state <> 'succeeded'")

    def disconnect(self) -> None:
        """Close the pool."""
        self.wait_for(self._chancy.pool.close())

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        number = str(concurrency or NOOP_CONCURRENCY)
        return [sys.executable, "-m", "benchmarks.peers.chancy.jobs", number]


def _job(kind: str, number: int) -> Job:
    return Job(func=PATH, kwargs={"kind": kind, "number": number})


if __name__ == "__main__":
    main(ChancyRunner())
