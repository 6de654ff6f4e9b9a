"""The runner of django-q2."""

from __future__ import annotations

import sys

from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import main
from benchmarks.peers.django_project import DjangoRunner, set_up

HANDLE = "benchmarks.measuring.handlers.handle"


class DjangoQRunner(DjangoRunner):
    """`async_task` and the cluster."""

    def prepare(self) -> None:
        """Migrate and load what needs Django."""
        super().prepare()
        from django_q.tasks import async_task

        self._async_task = async_task

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job."""
        self._async_task(HANDLE, kind, number)

    def unfinished(self) -> int:
        """Count the packages that are not acknowledged."""
        return ask("SELECT count(*) FROM django_q_ormq")

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        return [sys.executable, "-m", "django", "qcluster", "-v0"]


if __name__ == "__main__":
    set_up("benchmarks.peers.django_q2.settings")
    main(DjangoQRunner())
