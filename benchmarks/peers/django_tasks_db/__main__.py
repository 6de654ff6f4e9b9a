"""The runner of django-tasks-db."""

from __future__ import annotations

import sys

from benchmarks.measuring.runner import main
from benchmarks.peers.django_project import DjangoRunner, set_up


class DjangoTasksRunner(DjangoRunner):
    """Django's task interface and the package's command."""

    def prepare(self) -> None:
        """Migrate and load the task."""
        super().prepare()
        from benchmarks.peers.django_tasks_db.jobs import handle

        self._handle = handle

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        self._handle.enqueue(kind, number)

    def unfinished(self) -> int:
        """Count what did not succeed."""
        from django_tasks_db.models import DBTaskResult

        return int(DBTaskResult.objects.exclude(status="SUCCESSFUL").count())

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        command = [sys.executable, "-m", "django", "db_worker", "--interval", "0.01", "-v0"]
        return [*command, "--no-startup-delay", "--no-reload"]


if __name__ == "__main__":
    set_up("benchmarks.peers.django_tasks_db.settings")
    main(DjangoTasksRunner())
