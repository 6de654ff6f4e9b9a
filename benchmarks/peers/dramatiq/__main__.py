"""The runner of Dramatiq."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.dramatiq.jobs import broker, handle

if TYPE_CHECKING:
    from collections.abc import Mapping

NOOP_THREADS = 8


class DramatiqRunner(Runner):
    """Dramatiq by its actor and its command."""

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        handle.send(kind, number)

    def unfinished(self) -> int:
        """Count the messages that are not acknowledged."""
        return int(broker.client.hlen("dramatiq:default.msgs"))

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        command = [sys.executable, "-m", "dramatiq", "benchmarks.peers.dramatiq.jobs"]
        return [*command, "--processes", "1", "--threads", str(concurrency or NOOP_THREADS)]

    def worker_environment(self) -> Mapping[str, str]:
        """Take many jobs at a time."""
        return {"dramatiq_queue_prefetch": "1000"}


if __name__ == "__main__":
    main(DramatiqRunner())
