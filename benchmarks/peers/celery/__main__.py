"""The runner of Celery."""

from __future__ import annotations

import os
import sys

import redis

from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.celery.jobs import handle

NOOP_THREADS = 8


class CeleryRunner(Runner):
    """Celery by its task and its worker."""

    def __init__(self) -> None:
        self._redis = redis.Redis.from_url(os.environ["REDIS_URL"])

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        handle.delay(kind, number)

    def unfinished(self) -> int:
        """Count what waits and what is not acknowledged."""
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery.jobs", "worker"]
        threads = ["--pool", "threads", "--concurrency", str(concurrency or NOOP_THREADS)]
        quiet = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        return [
            *command,
            *threads,
            *quiet,
            "--without-heartbeat",
            "-n",
            f"{os.urandom(4).hex()}@%h",
        ]


if __name__ == "__main__":
    main(CeleryRunner())
