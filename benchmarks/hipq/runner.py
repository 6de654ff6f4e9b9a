"""How hipq_django is used, by its public face."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from django.core.management import call_command
from django.db import connections

import hipq_django as hipq
from benchmarks.hipq.noop.jobs import plain
from benchmarks.measuring.runner import Runner
from hipq_django.models import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hipq_django.models.job import JobQuerySet


TYPES = {"plain": plain.name, "raise": "declined", "raise_thrice": "thrice"}
"""The job types of the kinds that have one of their own."""


class HipqRunner(Runner):
    """The runner of hipq_django."""

    def __init__(self) -> None:
        self._ignored_id = 0

    def prepare(self) -> None:
        """Migrate the run's database."""
        call_command("migrate", verbosity=0)

    def enqueue(self, kind: str, number: int) -> None:
        """Enqueue one job in a transaction of its own."""
        hipq.enqueue(TYPES.get(kind, "work"), {"kind": kind, "number": number})

    def enqueue_bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Enqueue all in one call."""
        new = _new_task if kind == "task" else _new_job
        self.enqueue_new(new(kind, number) for number in numbers)

    def enqueue_new(self, jobs: Iterable[hipq.NewJob]) -> None:
        """Enqueue these jobs in one call."""
        hipq.enqueue_many(jobs)

    def ignore_existing(self) -> None:
        """Let `unfinished` look at none of the jobs that are there now."""
        self._ignored_id = Job.objects.order_by("pk").values_list("pk", flat=True).last() or 0

    def start_chain(self, steps: int) -> None:
        """Enqueue a chain."""
        hipq.chain(
            *[hipq.NewJob("work", {"kind": "stamp", "number": number}) for number in range(steps)]
        )

    def unfinished(self) -> int:
        """Count the live jobs."""
        return self.mine().live().count()

    def mine(self) -> JobQuerySet:
        """Return the jobs that are not ignored."""
        return Job.objects.filter(pk__gt=self._ignored_id)

    def finish_all(self) -> None:
        """Let no job be live any more."""
        hipq.cancel_many(Job.objects.live())

    def schedule_ticks(self) -> None:
        """Make the schedule."""
        hipq.schedule("tick", hipq.NewJob("tick"), "* * * * * *")

    def disconnect(self) -> None:
        """Close the connection; the next query opens another one."""
        connections.close_all()

    def worker(self, concurrency: int | None = None, *queues: str) -> list[str]:
        """Return the command as an operator types it."""
        threads = [] if concurrency is None else ["--threads", str(concurrency)]
        command = [sys.executable, "-m", "django", "hipq_worker", "-v0", "--no-reload"]
        return [*command, *threads, *queues]


def _new_job(kind: str, number: int) -> hipq.NewJob:
    return hipq.NewJob(TYPES.get(kind, "work"), {"kind": kind, "number": number})


def _new_task(_: str, number: int) -> hipq.NewJob:
    """Return the job of a task of `django.tasks`, which is loaded for its own measurement only."""
    from benchmarks.hipq.noop.tasks import handle

    return hipq.new(handle, "noop", number)
