"""What the steps of a worker's scheduler share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from hipq_django.engines import engine_for
from hipq_django.engines.rows import set_parents
from hipq_django.job_types.registry import get_all_declared
from hipq_django.models import JobType
from hipq_django.scheduler.throttled import HeldScans, StartDelay

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hipq_django.models import Job, Queue, Worker
    from hipq_django.models.job import JobQuerySet
    from hipq_django.scheduler.current_batch import CurrentBatch
    from hipq_django.scheduler.runner import JobRunner
    from hipq_django.transitions.values import Claim

TYPES_SECONDS = 1.0
"""How long a worker may go on with the job types it has read."""

TYPES_SHARE = 0.02
"""The share of its time for reading them, where the database is far away."""


class Admitted(NamedTuple):
    """What came of looking at one queue."""

    claims: list[Claim]
    """Committed, and not started yet."""
    moved: int = 0
    """How many jobs got another time, or were settled by an answer that was there."""
    is_full: bool | None = None
    """Whether the next end of a job makes room for one that waits; None: not known."""
    resume_after: tuple[int, int] | None = None
    """The rank and id behind which the next pass looks for jobs that are not held."""
    has_more: bool = False
    """Whether there is more where this came from."""
    is_contended: bool = False
    """Whether another worker was just admitting to the queue."""


class KnownTypes:
    """The job types that this process has code for, and the others; read now and then."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._read_at = 0.0
        self.by_id: dict[int, JobType] = {}
        self.unknown: list[int] = []
        """The ids of those that it has no code for."""

    def read(self) -> None:
        """Read them, unless that was done a moment ago."""
        began = time.monotonic()
        if began < self._read_at:
            return
        worker = self._worker
        declared = {declared.name for declared in get_all_declared(worker.instance)}
        rows = JobType.objects.using(worker.using).filter(instance=worker.instance)
        self.by_id = {row.pk: row for row in rows if row.name in declared}
        self.unknown = [row.pk for row in rows if row.name not in declared]
        seconds = time.monotonic() - began
        self._read_at = began + max(TYPES_SECONDS, seconds / TYPES_SHARE)

    def among(self, rows: JobQuerySet) -> JobQuerySet:
        """Return the jobs that this process has code for."""
        return rows.exclude(job_type__in=self.unknown) if self.unknown else rows

    def runnable(self, queue: Queue, jobs: Iterable[Job]) -> list[Job]:
        """Return the same of jobs of a queue, with their queue and type."""
        found: list[Job] = []
        for job in jobs:
            job_type = self.by_id.get(job.job_type_id)
            if job_type is None:
                self._read_at = 0.0  # it was registered since
                continue
            set_parents(job, queue, job_type)
            found.append(job)
        return found


class Suspects:
    """The suspects that a worker has claimed."""

    def __init__(self) -> None:
        self._attempts: dict[int, int] = {}

    def claimed(self, jobs: Sequence[Job]) -> None:
        """Note suspects that are claimed now, by their ids and attempts."""
        self._attempts |= {job.pk: job.attempt for job in jobs}

    def has_one_in(self, batch: CurrentBatch) -> bool:
        """Return whether one of them is in flight still; forget the others."""
        if self._attempts:
            self._attempts = dict(self._attempts.items() & batch.attempts())
        return bool(self._attempts)


class SchedulerContext:
    """Of one worker: its row, its engine, who runs its jobs, and what it remembers of them."""

    def __init__(self, worker: Worker, runner: JobRunner) -> None:
        self.worker = worker
        self.using = worker.using
        self.engine = engine_for(worker.using)
        self.runner = runner
        self.batch = runner.batch
        self.types = KnownTypes(worker)
        self.suspects = Suspects()
        self.held_scans = HeldScans()
        self.start_delay = StartDelay()

    @property
    def has_suspect(self) -> bool:
        """Whether this worker has a suspect in flight: it takes one at a time."""
        return self.suspects.has_one_in(self.batch)
