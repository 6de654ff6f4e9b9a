"""The runner of dj_queue."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Max

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import main
from benchmarks.peers.django_project import DjangoRunner, set_up

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK = "benchmarks.peers.dj_queue.jobs.handle"


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

    def schedule_ticks(self) -> None:
        """Store the recurring task."""
        from dj_queue.api import schedule_recurring_task

        schedule_recurring_task(
            key="tick", task_path=TASK, schedule="* * * * * *", args=["tick", 0]
        )

    def ticking_worker(self) -> list[str]:
        """Return the command of everything: workers, dispatcher and scheduler."""
        return [sys.executable, "-m", "django", "dj_queue", "-v0", "--mode", "async"]

    def schedule_many(self, number: int, due: int) -> None:
        """Store so many recurring tasks of this second of the day."""
        from dj_queue.models import RecurringTask

        moment = datetime.fromtimestamp(due, UTC)
        RecurringTask.objects.all().delete()
        RecurringTask.objects.bulk_create(
            RecurringTask(
                key=f"schedule {n}",
                task_path=TASK,
                payload={"args": ["noop", n], "kwargs": {}},
                schedule=f"{moment:%-S %-M %-H} * * *",
                next_run_at=moment,
            )
            for n in range(number)
        )

    def made_from_schedules(self, due: int) -> tuple[int, float]:
        """Look at the jobs."""
        from dj_queue.models import Job

        made = Job.objects.filter(created_at__gte=datetime.fromtimestamp(due, UTC))
        last = made.aggregate(last=Max("created_at"))["last"]
        return made.count(), last.timestamp() if last else 0.0

    def scheduling_worker(self) -> list[str]:
        """Return the command of everything, too."""
        return self.ticking_worker()

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
