"""Builds new jobs from the given values: checks them and adds the defaults of their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.utils.functional import cached_property

from hipq_django import transitions
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.database import clock
from hipq_django.database.transactions import check_commits
from hipq_django.domain.dependencies import HELD_UNTIL
from hipq_django.domain.drafts import BoundJob, NewJob, OnConflict
from hipq_django.domain.job_options import GIVEN, OF_TYPES, checks
from hipq_django.domain.ordering import HELD_RANK
from hipq_django.domain.sharding import checked_shard_key
from hipq_django.domain.states import NONE
from hipq_django.domain.uniqueness import KEY_FIELDS, Unique, check_key_stays, checked_unique_key
from hipq_django.domain.validation import (
    checked_data,
    checked_key,
    checked_name,
    checked_type_name,
)
from hipq_django.engines.rows import JobTemplate, job_template, queue_of, unsaved_job
from hipq_django.exceptions import ArgumentsError, InvalidJobError
from hipq_django.job_types.current import CURRENT_JOB
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import find_declared, get_declared
from hipq_django.models import Batch, Job, JobType, Queue
from hipq_django.models.catalog import cached_job_type, get_named_queue, get_queue
from hipq_django.models.masking import shown
from hipq_django.models.undeclared_names import check_declared
from hipq_django.sharding.routing import Routes


class Builder:
    """Builds unsaved jobs; looks up each job type and queue once."""

    def __init__(
        self,
        instance: str,
        find_type: Callable[[str, str], JobType],
        *,
        verb: str | None = "enqueue",
        batch: Batch | None = None,
    ) -> None:
        """`verb` is what was called, for errors.

        None if the names were checked when they were stored. All jobs belong to `batch`, if it is
        given, whatever they name.
        """
        self.instance = instance
        self.batch = batch
        self.verb = verb
        self._find_type = find_type
        self.config = config = get_instance(instance)
        self._max_bytes = config.max_data_bytes
        if not config.is_sharded:  # else it may not be where the jobs go, and not answer
            check_commits(config.database)
        self._work_in(config.database)
        self._types: dict[str, JobType] = {}
        self._queues: dict[str, Queue] = {}
        self._templates: dict[tuple[str, str | None], JobTemplate] = {}
        self._tasks: dict[str, Declaration] = {}
        self._unique: dict[str, Unique] = {}
        self._has_rare = batch is not None

    def _work_in(self, using: str) -> None:
        self.using, self.now = using, clock.now(using)
        running = CURRENT_JOB.get()
        self._parent_id = running.pk if running and running.using == using else None

    def in_shard(self, using: str) -> Builder:
        """Let this builder, which has looked nothing up yet, build jobs of a shard."""
        check_commits(using)
        self._work_in(using)
        return self

    def with_lookup(self, find_type: Callable[[str, str], JobType]) -> Builder:
        """Return the same builder, which has looked nothing up yet and reads types otherwise.

        In a sharded instance it builds jobs of the shard that is worked on.
        """
        made = Builder(self.instance, find_type, verb=self.verb, batch=self.batch)
        check_commits(made.using)
        return made

    @cached_property
    def routes(self) -> Routes:
        """Says in which shards jobs are; without SHARDS nobody asks."""
        return Routes(self.config, _digests(self.config, self.verb))

    @property
    def has_unique(self) -> bool:
        """Return whether one of the job types that were looked up has unique jobs."""
        return bool(self._unique)

    @property
    def has_extra(self) -> bool:
        """Return whether the jobs have values in columns that are NULL in most jobs."""
        return self._parent_id is not None or bool(self._unique) or self._has_rare

    def on_conflict(self, job_type: str) -> OnConflict:
        """Return what is done on a conflict unless somebody says it; the type was looked up."""
        return "return" if job_type in self._unique else "raise"

    def look_up(self, jobs: Iterable[NewJob]) -> None:
        """Read everything from the database that building the jobs needs."""
        jobs = list(jobs)
        self._has_rare |= any(n.batch is not None or n.shard_key is not None for n in jobs)
        for (job_type, queue), _ in groupby(jobs, attrgetter("job_type", "queue")):
            self._template(job_type, queue)

    def build(self, new: NewJob, *, held: bool = False) -> Job:
        """Return the job, `held` until others have ended.

        Raise `InvalidJobError` before anything is written.
        """
        data = stored_data(new, self._max_bytes)
        key, own = checked_key(new.job_key), given_values(new)
        template = self._template(new.job_type, new.queue)
        data = self._arguments(new, data)
        values = {
            "job_data": data,
            "job_key": key,
            "time_windows": [*template.values["time_windows"]],
        }
        is_plain = new.unique_key is None and new.batch is None and new.shard_key is None
        if self._unique or not is_plain:
            values |= self._rare_values(new, data, key)
        if self.config.own_tables and new.queue is not None and _has_key(values):
            of_type = queue_of(self._types[new.job_type]).name
            check_key_stays(f"enqueue {new.job_type!r}", new.queue, of_type)
        # Tasks of Django always name a priority, mostly that of their type.
        if own.items() <= {"priority": template.values["priority"]}.items() and not held:
            return unsaved_job(template, values)
        if "delay" in own:
            own["scheduled_run_time"] = self.now + own.pop("delay")
        # From now, or from the given time: the template's time already lies in the type's windows.
        job = unsaved_job(template, values | {"scheduled_run_time": self.now} | own)
        _schedule(job)
        if held:
            hold(job)
            self._has_rare = True
        return job

    def _rare_values(self, new: NewJob, data: Any, key: str) -> dict[str, Any]:
        """Return the keys that keep other jobs with these arguments away, batch and shard key."""
        values: dict[str, Any] = {}
        if new.shard_key is not None:
            self._has_rare = True
            values["shard_key"] = checked_shard_key(f"enqueue {new.job_type!r}", new.shard_key)
        if new.batch is not None and self.batch is None:
            self._has_rare = True
            values["batch_id"] = new.batch if isinstance(new.batch, int) else new.batch.pk
        if new.job_type in self._unique or new.unique_key is not None:
            values |= self._unique_values(new, data, key)
        return values

    def _unique_values(self, new: NewJob, data: Any, key: str) -> dict[str, Any]:
        unique = self._unique.get(new.job_type)
        if unique is None:
            raise InvalidJobError(
                f"job type {new.job_type!r}: unique_key is given, but its jobs are not unique; "
                "declare it with unique='live', 'waiting' or 'kept'."
            )
        if unique.scope == "live" and key != NONE:
            return {}  # its own key wins
        given = None if new.unique_key is None else checked_unique_key(new.unique_key)
        row = self._types[new.job_type]
        is_of_task = row.signature or row.kind  # whose arguments were checked
        if given is None and not is_of_task and not unique.compares(data):
            raise InvalidJobError(
                f"job type {new.job_type!r}: unique_on names {', '.join(unique.on or ())}, and "
                f"job_data {shown(row, data)!r:.100} has none of them, so that all such jobs would "
                "count as one; correct the data, or give unique_key."
            )
        return {KEY_FIELDS[unique.scope]: unique.key(row.compared(data), given)}

    def _arguments(self, new: NewJob, data: Any) -> Any:
        """Return the checked data of a job; of a task, its arguments."""
        if type(new) is BoundJob:  # they were checked, by the task of its instance
            if new.instance not in (None, self.instance):
                raise InvalidJobError(
                    f"task {new.job_type!r} belongs to instance {new.instance!r}, and its job was "
                    f"to be stored in {self.instance!r}; give instance={new.instance!r}."
                )
            return data
        task = self._tasks.get(new.job_type)
        return checked_data(task.checked_data(data), self._max_bytes) if task else data

    def _template(self, job_type: str, queue: str | None) -> JobTemplate:
        """Return what jobs have that name no values of their own."""
        try:
            template = self._templates.get((job_type, queue))
        except TypeError:  # one of the two is no text at all; the checks say so
            template = None
        return template or self._new_template(job_type, queue)

    def _new_template(self, job_type: str, queue: str | None) -> JobTemplate:
        job_type = checked_type_name(job_type)
        queue = None if queue is None else checked_name("queue", queue)
        row = self._job_type(job_type)
        # Its own queue was read with it; `django.tasks` always names the queue.
        place = queue_of(row)
        if queue is not None and queue != place.name:
            place = self._queue(queue, job_type)
        template = self._templates[job_type, queue] = _scheduled(
            place,
            row,
            self.now,
            **{name: getattr(row, column) for name, column in _COLUMNS.items()},
            parent_id=self._parent_id,
            batch_id=self.batch and self.batch.pk,
        )
        return template

    def _job_type(self, name: str) -> JobType:
        if name not in self._types:
            if self.verb is not None:
                check_declared(self.instance, name, self.verb)
            row = self._types[name] = self._find_type(self.instance, name)
            declared = find_declared(self.instance, name, row.kind)
            if declared is not None and (declared.signature or declared.checks_data):
                self._tasks[name] = declared
            # The row says it where the code is that of another service.
            if unique := declared.unique if declared else row.uniqueness:
                self._unique[name] = unique
        return self._types[name]

    def _queue(self, name: str, job_type: str) -> Queue:
        if name not in self._queues:
            declared = get_declared(self.instance, job_type)
            # The names of tasks of `django.tasks` are checked by the setting TASKS.
            if self.verb is None or (declared is not None and declared.kind):
                self._queues[name] = get_queue(self.instance, name)
            else:
                self._queues[name] = get_named_queue(self.instance, name, self.verb)
        return self._queues[name]


def _digests(config: InstanceSettings, verb: str | None) -> Callable[[NewJob], str | None]:
    """Return a function that returns the key by which a unique job is compared, or None."""
    made: list[Builder] = []

    def digest(new: NewJob) -> str | None:
        name = new.job_type if isinstance(new.job_type, str) else ""
        declared = get_declared(config.name, name)
        if declared is not None:  # then no database is asked, which may not answer
            return _digest_of(new, declared, config)
        if not made:
            made.append(Builder(config.name, cached_job_type, verb=verb))
        job = made[0].build(new)
        keys = (job.job_key, job.waiting_key, job.kept_key)
        return next((key for key in keys if key not in (None, NONE)), None)

    return digest


def _digest_of(new: NewJob, declared: Declaration, config: InstanceSettings) -> str | None:
    if declared.unique is None:
        return None
    if new.unique_key is not None:
        return checked_unique_key(new.unique_key)
    data = stored_data(new, config.max_data_bytes)
    if type(new) is not BoundJob:
        data = checked_data(declared.checked_data(data), config.max_data_bytes)
    return declared.unique.key(declared.compared(data), None)


def _has_key(values: Mapping[str, Any]) -> bool:
    return any(values.get(name, NONE) != NONE for name in KEY_FIELDS.values())


_CHECKS = checks(GIVEN)
_COLUMNS = {option.name: option.column for option in OF_TYPES if GIVEN in option.places}
_own = attrgetter(*_CHECKS)
_NOTHING_OWN = (None,) * len(_CHECKS)


def given_values(new: NewJob) -> dict[str, Any]:
    """Return the options that a job is given, as they are stored; raise `InvalidJobError`."""
    if (values := _own(new)) == _NOTHING_OWN:
        return {}
    if new.delay is not None and new.scheduled_run_time is not None:
        raise InvalidJobError(
            f"delay {new.delay!r} and scheduled_run_time {new.scheduled_run_time!r}: give one of "
            "them, not both."
        )
    given = zip(_CHECKS.items(), values, strict=True)
    return {name: check(value) for (name, check), value in given if value is not None}


def stored_data(new: NewJob, max_bytes: int | None = None) -> Any:
    """Return the copy of a job's data that is stored; raise as `checked_data` does."""
    try:
        return checked_data(new.job_data, max_bytes)
    except InvalidJobError as error:
        if type(new) is not BoundJob:
            raise
        task = new.job_type.rpartition(".")[2]
        raise ArgumentsError(f"{task}: {error}") from error.__cause__


def new_job(queue: Queue, job_type: JobType, now: datetime, **values: Any) -> Job:
    """Return an unsaved job; its first time lies in its windows, its rank fits its queue."""
    return unsaved_job(_scheduled(queue, job_type, now, **values))


def _scheduled(queue: Queue, job_type: JobType, now: datetime, **values: Any) -> JobTemplate:
    """Return the template of jobs whose first time is now, or the next in their windows."""
    times = {"create_time": now, "update_time": now, "deadline": now, "scheduled_run_time": now}
    template = job_template(queue, job_type, times | values)
    if values["time_windows"]:
        first = transitions.first_opening(unsaved_job(template), now)
        template.values["scheduled_run_time"] = first
    else:
        first = now
    template.values["rank"] = queue.ordering.rank(first, values["priority"])
    return template


def hold(job: Job) -> None:
    """Let a new job wait for others: its time is kept, and comes when they have ended."""
    job.hold_time = job.scheduled_run_time
    job.scheduled_run_time, job.rank = HELD_UNTIL, HELD_RANK


def _schedule(job: Job) -> None:
    if job.time_windows:
        job.scheduled_run_time = transitions.first_opening(job, job.scheduled_run_time)
    job.rank = queue_of(job).ordering.rank(job.scheduled_run_time, job.priority)
