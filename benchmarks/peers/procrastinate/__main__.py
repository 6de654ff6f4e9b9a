"""The runner of Procrastinate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.procrastinate.jobs import app, handle, thrice

if TYPE_CHECKING:
    from collections.abc import Sequence

NOOP_CONCURRENCY = 30


class ProcrastinateRunner(Runner):
    """Procrastinate by its synchronous face and its command."""

    def prepare(self) -> None:
        """Apply the schema."""
        app.open()
        app.schema_manager.apply_schema()

    def enqueue(self, kind: str, number: int) -> None:
        """Defer one job."""
        _task(kind).defer(kind=kind, number=number)

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Defer all in one call."""
        _task(kind).batch_defer(*[{"kind": kind, "number": number} for number in numbers])

    def unfinished(self) -> int:
        """Count what waits or runs."""
        return ask("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")

    def disconnect(self) -> None:
        """Close the pool."""
        app.close()

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        number = str(concurrency or NOOP_CONCURRENCY)
        application = "benchmarks.peers.procrastinate.jobs.app"
        command = [sys.executable, "-m", "procrastinate", "--app", application, "worker"]
        return [*command, "--concurrency", number, "--name", "worker"]


def _task(kind: str) -> Any:
    return thrice if kind == "raise_thrice" else handle


if __name__ == "__main__":
    main(ProcrastinateRunner())
