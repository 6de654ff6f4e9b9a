"""The runner of dj_queue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import main
from benchmarks.peers.django_project import DjangoRunner, set_up

if TYPE_CHECKING:
    from collections.abc import Sequence


class DjQueueRunner(DjangoRunner):
    """Django's task interface and the package's command."""

    def prepare(self) -> None:
        """Migrate and load the task."""
        super().prepare()
        from benchmarks.peers.dj_queue.jobs import handle

        self._handle = handle

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        self._handle.enqueue(kind, number)

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Enqueue all in one call."""
        calls: list[Any] = [(self._handle, [kind, number], {}) for number in numbers]
        backend: Any = self._handle.get_backend()
        backend.enqueue_all(calls)

    def unfinished(self) -> int:
        """Count the jobs without a time of their end."""
        return ask("SELECT count(*) FROM dj_queue_jobs WHERE finished_at IS NULL")

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command; the number of threads is a setting."""
        threads = (
            [] if concurrency is None else [f"BENCH_THREADS={concurrency}", "BENCH_PREFETCH=2"]
        )
        command = ["env", *threads, sys.executable, "-m", "django", "dj_queue", "-v0"]
        return [*command, "--mode", "async", "--only-work"]


if __name__ == "__main__":
    set_up("benchmarks.peers.dj_queue.settings")
    main(DjQueueRunner())
