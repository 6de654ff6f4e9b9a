"""New jobs from what was asked for: checked, with the defaults of their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from hipq_django import transitions
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.transactions import check_commits
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.validation import (
    aware_moment,
    checked_data,
    checked_delay,
    checked_factor,
    checked_key,
    checked_name,
    checked_priority,
    checked_timeout,
    checked_type_name,
    checked_windows,
)
from hipq_django.engines.rows import copy_of, unsaved_job
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Job, JobType, Queue
from hipq_django.models.catalog import get_queue


class Builder:
    """Makes unsaved jobs; looks each job type and queue up once."""

    def __init__(self, instance: str, find_type: Callable[[str, str], JobType]) -> None:
        self.instance = instance
        self._find_type = find_type
        self.using = get_instance(instance).database
        check_commits(self.using)
        self.now = clock.now(self.using)
        self._types: dict[str, JobType] = {}
        self._queues: dict[str, Queue] = {}
        self._patterns: dict[tuple[str, str | None], Job] = {}

    def look_up(self, jobs: Iterable[NewJob]) -> None:
        """Ask the database for all that building the jobs needs of it."""
        for (job_type, queue), _ in groupby(jobs, attrgetter("job_type", "queue")):
            self._template(job_type, queue)

    def build(self, new: NewJob) -> Job:
        """Return the job; raise `InvalidJobError` before anything is written."""
        data, key, own = checked_data(new.job_data), checked_key(new.job_key), _given_values(new)
        pattern = self._template(new.job_type, new.queue)
        values = {"job_data": data, "job_key": key, "time_windows": [*pattern.time_windows]}
        if not own:
            return copy_of(pattern, values)
        if "delay" in own:
            own["scheduled_run_time"] = self.now + own.pop("delay")
        # From now on, or the time given: the pattern's time is the first in the type's windows.
        job = copy_of(pattern, values | {"scheduled_run_time": self.now} | own)
        _schedule(job)
        return job

    def _template(self, job_type: str, queue: str | None) -> Job:
        """Return the job that has all the defaults, to be copied."""
        try:
            pattern = self._patterns.get((job_type, queue))
        except TypeError:  # one of the two is no text at all; the checks say so
            pattern = None
        return pattern or self._new_pattern(job_type, queue)

    def _new_pattern(self, job_type: str, queue: str | None) -> Job:
        checked_type_name(job_type)
        if queue is not None:
            checked_name("queue", queue)
        row = self._job_type(job_type)
        place = row.queue if queue is None else self._queue(queue)
        pattern = self._patterns[job_type, queue] = new_job(
            place,
            row,
            self.now,
            timeout=row.default_timeout,
            priority=row.default_priority,
            throttle_factor=row.default_throttle_factor,
            time_windows=row.default_time_windows,
        )
        return pattern

    def _job_type(self, name: str) -> JobType:
        if name not in self._types:
            self._types[name] = self._find_type(self.instance, name)
        return self._types[name]

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = get_queue(self.instance, name)
        return self._queues[name]


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "scheduled_run_time": partial(aware_moment, "scheduled_run_time"),
    "delay": checked_delay,
    "timeout": checked_timeout,
    "priority": checked_priority,
    "throttle_factor": checked_factor,
    "time_windows": checked_windows,
}
_own = attrgetter(*_CHECKS)
_NOTHING_OWN = (None,) * len(_CHECKS)


def _given_values(new: NewJob) -> dict[str, Any]:
    if (values := _own(new)) == _NOTHING_OWN:
        return {}
    if new.delay is not None and new.scheduled_run_time is not None:
        raise InvalidJobError(
            f"delay {new.delay!r} and scheduled_run_time {new.scheduled_run_time!r}: give one of "
            "them, not both."
        )
    given = zip(_CHECKS.items(), values, strict=True)
    return {name: check(value) for (name, check), value in given if value is not None}


def new_job(queue: Queue, job_type: JobType, now: datetime, **values: Any) -> Job:
    """Return an unsaved job; its first time lies in its windows, its rank fits its queue."""
    times = {"create_time": now, "update_time": now, "deadline": now, "scheduled_run_time": now}
    job = unsaved_job(queue, job_type, times | values)
    _schedule(job)
    return job


def _schedule(job: Job) -> None:
    if job.time_windows:
        job.scheduled_run_time = transitions.first_opening(job, job.scheduled_run_time)
    job.rank = job.queue.ordering.rank(job.scheduled_run_time, job.priority)
