"""Says which due jobs a worker leaves alone, because its code does not declare their type."""

from __future__ import annotations

from collections.abc import Iterator

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.exceptions import nearest_name
from hipq_django.job_types.registry import find_declared, known_names
from hipq_django.models import Job, JobType, Queue, Worker
from hipq_django.models.undeclared_names import HOW_TO_DECLARE

FIRST = 1_000
"""How many due jobs of a queue are looked at: those that nobody runs stay at its head."""


class UndeclaredTypes:
    """Warns once of each type."""

    def __init__(self, config: InstanceSettings, worker: Worker) -> None:
        self._config = config
        self._worker = worker
        self._told: set[int] = set()

    def warn(self) -> int:
        """Look at the first due jobs of the queues that the worker serves; move none."""
        left = {row.pk: row for row in self._undeclared()}
        if not left:
            return 0
        rows = Queue.objects.using(self._config.database).filter(instance=self._config.name)
        for queue in filter(self._worker.serves, rows):
            for pk in self._due_types(queue) & left.keys():
                self._tell(left.pop(pk), queue)
        return 0

    def _undeclared(self) -> Iterator[JobType]:
        rows = JobType.objects.using(self._config.database).filter(instance=self._config.name)
        for row in rows:
            if row.pk not in self._told and not find_declared(row.instance, row.name, row.kind):
                yield row

    def _due_types(self, queue: Queue) -> set[int]:
        due = queue.jobs.using(queue.using).due(clock.now(queue.using)).order_by("rank", "pk")
        jobs = Job.objects.using(queue.using).filter(pk__in=due.values("pk")[:FIRST])
        return set(jobs.values_list("job_type", flat=True).distinct())

    def _tell(self, row: JobType, queue: Queue) -> None:
        self._told.add(row.pk)
        near = nearest_name(row.name, known_names(row.instance))
        text = f"its jobs are due, and no code of this worker declares it{near} {HOW_TO_DECLARE}"
        events.warning("undeclared_jobs_due", text, job_type=row.name, queue=queue.name)
