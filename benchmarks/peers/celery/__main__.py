"""The runner of Celery."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import redis
from celery import chain

from benchmarks.measuring.handlers import folder
from benchmarks.measuring.measurements import STEPS
from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.celery.jobs import handle

if TYPE_CHECKING:
    from collections.abc import Sequence

NOOP_THREADS = 8


class CeleryRunner(Runner):
    """Celery by its task and its worker."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(os.environ["REDIS_URL"])

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        handle.delay(kind, number)

    def start_pipelines(self, numbers: Sequence[int]) -> None:
        """Enqueue chains."""
        for number in numbers:
            chain(*[handle.si("noop", number) for _ in range(STEPS)]).delay()

    def start_chain(self, steps: int) -> None:
        """Enqueue a long chain."""
        chain(*[handle.si("stamp", number) for number in range(steps)]).delay()

    def unfinished(self) -> int:
        """Count what waits and what is not acknowledged."""
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        return _worker("jobs", concurrency or NOOP_THREADS)

    def schedule_ticks(self) -> None:
        """Beat reads its schedule from the code."""

    def ticking_worker(self) -> list[str]:
        """Return the command of a worker with a beat beside it, whose file is the run's own."""
        beat = ["--beat", "--schedule", str(folder() / "beat")]
        return [*_worker("ticks", NOOP_THREADS), *beat]


def _worker(module: str, threads: int) -> list[str]:
    application = f"benchmarks.peers.celery.{module}"
    command = [sys.executable, "-m", "celery", "-A", application, "worker"]
    quiet = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
    name = ["--without-heartbeat", "-n", f"{os.urandom(4).hex()}@%h"]
    return [*command, "--pool", "threads", "--concurrency", str(threads), *quiet, *name]


if __name__ == "__main__":
    main(CeleryRunner())
