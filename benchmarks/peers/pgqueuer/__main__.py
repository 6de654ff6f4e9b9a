"""The runner of pgqueuer."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import asyncpg
from pgqueuer.queries import Queries

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import AsyncRunner, main

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH = 500


class PgQueuerRunner(AsyncRunner):
    """pgqueuer by its queries and its command."""

    def prepare(self) -> None:
        """Install the tables."""
        self.wait_for(self._connect(install=True))

    async def _connect(self, *, install: bool) -> None:
        self._connection = await asyncpg.connect(os.environ["DATABASE_URL"])
        self._queries = Queries.from_asyncpg_connection(self._connection)
        if install:
            await self._queries.install()

    async def enqueue_async(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        await self._queries.enqueue("handle", _payload(kind, number))

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Enqueue all in one call."""
        payloads = [_payload(kind, number) for number in numbers]
        self.wait_for(self._enqueue_many(payloads))

    async def _enqueue_many(self, payloads: list[bytes]) -> None:
        number = len(payloads)
        await self._queries.enqueue(["handle"] * number, payloads, [0] * number)

    def unfinished(self) -> int:
        """Count the queue's rows; a finished job leaves the table."""
        return ask("SELECT count(*) FROM pgqueuer")

    def disconnect(self) -> None:
        """Close the connection and open a new one only for the next use."""
        self.wait_for(self._connection.close())

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command; a limit must be at least twice the batch."""
        command = [sys.executable, "-m", "benchmarks.peers.pgqueuer.jobs"]
        if concurrency is None:
            return [*command, str(BATCH)]
        return [*command, str(concurrency // 2), str(concurrency)]


def _payload(kind: str, number: int) -> bytes:
    return json.dumps([kind, number]).encode()


if __name__ == "__main__":
    main(PgQueuerRunner())
