"""The runner of Procrastinate."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.measurements import STEPS
from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.procrastinate.jobs import app, handle, link, step, thrice

if TYPE_CHECKING:
    from collections.abc import Sequence

NOOP_CONCURRENCY = 30


class ProcrastinateRunner(Runner):
    """Procrastinate by its synchronous face and its command."""

    def __init__(self) -> None:
        self._many: dict[str, str] = {}

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

    def start_pipelines(self, numbers: Sequence[int]) -> None:
        """Defer the first steps in one call; each defers the next."""
        app.open()  # `disconnect` has closed it if this is not the first time
        step.batch_defer(*[{"number": number, "left": STEPS - 1} for number in numbers])

    def start_chain(self, steps: int) -> None:
        """Defer the first step; each defers the next."""
        link.defer(number=0, steps=steps)

    def unfinished(self) -> int:
        """Count what waits or runs."""
        return ask("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")

    def disconnect(self) -> None:
        """Close the pool."""
        app.close()

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        return _worker("jobs", concurrency or NOOP_CONCURRENCY)

    def schedule_ticks(self) -> None:
        """Its workers make the jobs of periodic tasks, from the code."""

    def ticking_worker(self) -> list[str]:
        """Return the command of a worker with the periodic task."""
        return _worker("ticks", NOOP_CONCURRENCY)

    def schedule_many(self, number: int, due: int) -> None:
        """Note how many periodic tasks the workers' code is to have, and when they are due."""
        self._many = {
            "BENCH_SCHEDULES": f"{number} {datetime.fromtimestamp(due, UTC):%-M %-H * * * %-S}"
        }

    def worker_environment(self) -> dict[str, str]:
        """Return that note."""
        return self._many

    def made_from_schedules(self, due: int) -> tuple[int, float]:
        """Look at the events, which say when a job was deferred."""
        event = "FROM procrastinate_events WHERE type = 'deferred' AND at >= to_timestamp(%s)"
        last = ask(f"SELECT coalesce(extract(epoch FROM max(at)) * 1000000, 0) {event}", due)
        return ask(f"SELECT count(*) {event}", due), last / 1e6

    def scheduling_worker(self) -> list[str]:
        """Return the command of a worker with these periodic tasks."""
        return _worker("many", NOOP_CONCURRENCY)


def _worker(module: str, concurrency: int) -> list[str]:
    application = f"benchmarks.peers.procrastinate.{module}.app"
    command = [sys.executable, "-m", "procrastinate", "--app", application, "worker"]
    return [*command, "--concurrency", str(concurrency), "--name", "worker"]


def _task(kind: str) -> Any:
    return thrice if kind == "raise_thrice" else handle


if __name__ == "__main__":
    main(ProcrastinateRunner())
