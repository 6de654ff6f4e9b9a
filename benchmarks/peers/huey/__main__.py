"""The runner of Huey."""

from __future__ import annotations

import os
import sys

from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.huey.jobs import handle, huey, thrice

NOOP_THREADS = 2 if "REDIS_URL" in os.environ else 1


class HueyRunner(Runner):
    """Huey by its task and its consumer."""

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        (thrice if kind == "raise_thrice" else handle)(kind, number)

    def unfinished(self) -> int:
        """Count what no worker has taken; there is no record of what is done."""
        return int(huey.pending_count())

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        threads = str(concurrency or NOOP_THREADS)
        consumer = [sys.executable, "-m", "huey.bin.huey_consumer"]
        options = ["-w", threads, "-k", "thread", "-d", "0.01", "-m", "0.01", "-q", "-n"]
        return [*consumer, "benchmarks.peers.huey.jobs.huey", *options]


if __name__ == "__main__":
    main(HueyRunner())
