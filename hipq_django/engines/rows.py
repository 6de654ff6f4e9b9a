"""Makes jobs and answers from rows, and jobs from other jobs, without `Model.__init__`.

For a batch of hundreds, Django's own way costs more than the database does. As in unpickling, no
signal of the model's initialisation is sent. A field that is not given is deferred: Django reads it
from the row when it is accessed.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from functools import cache
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db.models import Model
from django.db.models.base import ModelState

from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.serialization import encode_json
from hipq_django.domain.states import NONE
from hipq_django.domain.throttling import RunningJob
from hipq_django.engines.values import SettledJob
from hipq_django.models import Answer, Job, JobType, Queue, Worker

COLUMNS = (
    "id", "queue_id", "job_type_id", "job_data", "job_key", "state", "timeout", "error", "attempt",
    "scheduled_run_time", "priority", "throttle_factor", "time_windows", "rank",
    "has_pending_answer", "origin_id", "create_time", "schedule_id", "due_time",
)  # fmt: skip
"""The columns of a waiting job that a claim, a handler and a throttler need."""

keys_of = attrgetter("job_type_id", "job_key", "waiting_key", "kept_key")
"""The type of a job, and its keys."""

MOMENTS = ("scheduled_run_time", "create_time", "due_time")

QUEUE_COLUMNS = (
    "id", "instance", "name", "throttle_limit", "order", "granularity_seconds", "ageing_seconds",
    "paused", "throttler_state", "throttler_problem", "ranking", "share",
)  # fmt: skip
"""The columns of a queue that a scheduler needs."""

# The columns of a new job that differ from job to job, and what is the same for all. Most jobs of
# a batch share all but the first two.
JOB_COLUMNS = {
    "job_data": "jsonb",
    "job_key": "text",
    "queue_id": "bigint",
    "job_type_id": "bigint",
    "timeout": "double precision",
    "scheduled_run_time": "timestamptz",
    "priority": "integer",
    "throttle_factor": "numeric",
    "time_windows": "jsonb",
    "rank": "bigint",
    "deadline": "timestamptz",
    "create_time": "timestamptz",
    "update_time": "timestamptz",
}
EXTRA_COLUMNS = {
    "origin_id": "bigint",
    "parent_id": "bigint",
    "batch_id": "bigint",
    "hold_time": "timestamptz",
    "waiting_key": "text",
    "kept_key": "text",
    "schedule_id": "bigint",
    "due_time": "timestamptz",
    "shard_key": "text",
}
"""The columns that are NULL in most new jobs. Jobs that have any go in with all of them."""

ALL_COLUMNS = JOB_COLUMNS | EXTRA_COLUMNS

shared_values = itemgetter(*list(JOB_COLUMNS)[2:])
extra_values = itemgetter(*EXTRA_COLUMNS)
_NO_EXTRA = (None,) * len(EXTRA_COLUMNS)

CONSTANT_COLUMNS = {
    "state": "initial",
    "outcome": "NONE",
    "error": '"NONE"',
    "result": "null",
    "expects": "[]",
    "attempt": "0",
    "phase": "NONE",
    "has_pending_answer": "0",
    "prefetched": "0",
    "progress": "0",
    "progress_message": "NONE",
    "extended_seconds": "0",
}
CONSTANTS_IN_SQL = ", ".join(f"'{value}'" for value in CONSTANT_COLUMNS.values())

_NO_ERROR = json.dumps(NONE)
_decode = json.JSONDecoder().decode


def read_jobs(
    rows: Sequence[tuple[Any, ...]], queues: Sequence[Queue], moment: Callable[[Any], datetime]
) -> list[Job]:
    """Return the waiting jobs of `queues` from rows of `COLUMNS`; `moment` reads a time."""
    using, by_id = queues[0].using, {queue.id: queue for queue in queues}
    moments = Memory(moment)
    jobs: list[Job] = []
    for job_data, (
        pk, queue_id, job_type, _, job_key, state, timeout, error, attempt, scheduled_run_time,
        priority, factor, time_windows, rank, pending, origin, create_time, schedule, due_time,
    ) in zip(_decode(f"[{','.join([row[3] for row in rows])}]"), rows, strict=True):  # fmt: skip
        job = Job.__new__(Job)
        job.__dict__ = {
            "_state": _state(using, {"queue": by_id[queue_id]}),
            "id": pk,
            "queue_id": queue_id,
            "job_type_id": job_type,
            "job_data": job_data,
            "job_key": job_key,
            "state": state,
            "outcome": NONE,
            "timeout": timeout,
            "error": NONE if error == _NO_ERROR else _decode(error),
            "result": None,
            "attempt": attempt,
            "scheduled_run_time": moments[scheduled_run_time],
            "priority": priority,
            "throttle_factor": factor if isinstance(factor, Decimal) else factor_of(factor),
            "time_windows": [] if time_windows == "[]" else _decode(time_windows),
            "rank": rank,
            "worker_id": None,
            "has_pending_answer": bool(pending),
            "origin_id": origin,
            "create_time": moments[create_time],
            "schedule_id": schedule,
            "due_time": None if due_time is None else moments[due_time],
        }
        jobs.append(job)
    return jobs


def document_row(job: Job, text_of: Callable[[datetime], Any]) -> list[Any]:
    """Return the values of a new job in the order of `JOB_COLUMNS`; JSON as text."""
    return [encode_json(job.job_data), job.job_key, *shared_row(job, text_of)]


def plain_row(job: Job, text_of: Callable[[datetime], Any]) -> list[Any]:
    """Return the same with JSON as it is."""
    return [job.job_data, job.job_key, *shared_row(job, text_of, _as_it_is)]


def _as_it_is(value: Any) -> Any:
    return value


def shared_row(
    job: Job, text_of: Callable[[datetime], Any], json_of: Callable[[Any], Any] = encode_json
) -> list[Any]:
    """Return the part of it that most jobs of a batch have in common."""
    (
        queue, job_type, timeout, run_time, priority, factor, windows, rank, deadline, created,
        updated,
    ) = shared_values(job.__dict__)  # fmt: skip
    return [
        queue,
        job_type,
        timeout,
        text_of(run_time),
        priority,
        str(factor),
        json_of(windows),
        rank,
        text_of(deadline),
        text_of(created),
        text_of(updated),
    ]


def has_extra(job: Job) -> bool:
    """Return whether a new job has a key, or a value in one of `EXTRA_COLUMNS`."""
    own = job.__dict__
    return own["job_key"] != NONE or bool(extra_values(own) != _NO_EXTRA)


def extra_row(job: Job, text_of: Callable[[datetime], Any]) -> list[Any]:
    """Return the values of a new job in the order of `EXTRA_COLUMNS`."""
    values = extra_values(job.__dict__)
    return [text_of(value) if isinstance(value, datetime) else value for value in values]


def factor_of(number: Decimal | float) -> Decimal:
    """Return a factor, or a sum of factors; SQLite has only floats, factors three decimals."""
    return number if isinstance(number, Decimal) else Decimal(str(round(number, 3)))


def is_same(job: Job, other: Job) -> bool:
    """Return whether two jobs that were read by `read_jobs` have the same values.

    Their data is not compared, because a project's throttler may change it in its copy.
    """
    mine, others = job.__dict__, other.__dict__
    return all(mine[name] == others[name] for name in COLUMNS if name != "job_data")


def read_running_jobs(rows: Sequence[tuple[Any, ...]], keys: list[str] | None) -> list[RunningJob]:
    """Return what throttlers see from rows of a type's name, a key, a factor and the data.

    With `keys` the data is a `Dialect.data` for each of them.
    """
    texts = ",".join([text for row in rows for text in row[3:]])
    values = iter(_decode(f"[{texts}]"))  # at once, which takes half the time
    return [
        RunningJob(
            name,
            job_key,
            {key: next(values)[0] for key in keys} if keys else next(values),
            factor_of(factor),
        )
        for name, job_key, factor, *_ in rows
    ]


def read_queue(row: Sequence[Any], using: str) -> Queue:
    """Return the queue from a row of `QUEUE_COLUMNS`."""
    values = dict(zip(QUEUE_COLUMNS, row, strict=True))
    values["throttle_limit"] = factor_of(values["throttle_limit"])
    if (share := values["share"]) is not None:
        values["share"] = factor_of(share)
    values["paused"] = bool(values["paused"])
    for name in ("throttler_state", "ranking"):
        values[name] = {} if values[name] == "{}" else _decode(values[name])
    queue = Queue.__new__(Queue)
    queue.__dict__ = {"_state": _state(using, {}), **values}
    return queue


def read_answer(message: IncomingAnswer, settled: SettledJob, now: datetime, using: str) -> Answer:
    """Return the answer that was stored when a response settled its job."""
    answer = Answer.__new__(Answer)
    answer.__dict__ = {
        "_state": _state(using, {}),
        "id": settled.answer_id,
        "instance": message.instance,
        "job_type": message.job_type,
        "job_key": settled.job_key,
        "job_id": settled.job_id,
        "attempt": settled.attempt,
        "part": message.part,
        "message_id": message.message_id,
        "kind": message.kind,
        "payload": message.payload,
        "problem": message.problem,
        "status": Answer.Status.ACCEPTED,
        "receive_time": now,
    }
    return answer


def write_claim(jobs: Iterable[Job], values: Mapping[str, Any], worker: Worker) -> None:
    """Give the copies of claimed jobs the same values and their worker."""
    for job in jobs:
        if (error := job.__dict__["error"]) != NONE:
            job.last_error = error
        job.__dict__ |= values
        job._state.fields_cache["worker"] = worker


class JobTemplate(NamedTuple):
    """What new jobs of one type in one queue have in common."""

    queue: Queue
    job_type: JobType
    values: dict[str, Any]


def job_template(queue: Queue, job_type: JobType, values: dict[str, Any]) -> JobTemplate:
    """Return the template of jobs with `values`; what these lack has the model's defaults."""
    own = {"queue_id": queue.id, "job_type_id": job_type.id, "expects": []}
    return JobTemplate(queue, job_type, {**_defaults(), **own, **values})


def unsaved_job(template: JobTemplate, values: Mapping[str, Any] = MappingProxyType({})) -> Job:
    """Return a job that is not in the database yet, with `values` of its own."""
    queue, job_type, common = template
    parents = {"queue": queue, "job_type": job_type}
    job = Job.__new__(Job)
    job.__dict__ = {
        **common, **values, "_state": _state(queue._state.db, parents, adding=True)
    }  # fmt: skip
    return job


@cache
def _defaults() -> dict[str, Any]:
    plain = Job()
    return {field.attname: getattr(plain, field.attname) for field in Job._meta.concrete_fields}


def set_parents(job: Job, queue: Queue, job_type: JobType) -> None:
    """Do the same as the descriptors of the two fields, at a tenth of the cost."""
    job._state.fields_cache |= {"queue": queue, "job_type": job_type}


def set_types(jobs: Iterable[Job], types: Mapping[int, JobType]) -> None:
    """Give jobs that have their queue their types, by the ids of these."""
    for job in jobs:
        job._state.fields_cache["job_type"] = types[job.job_type_id]


def raw_values(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of a job's fields and its cached rows, without descriptors."""
    return job.__dict__, job._state.fields_cache


def queue_of(row: Job | JobType) -> Queue:
    """Return the queue that was made, or read, together with a row, without descriptors."""
    queue: Queue = row._state.fields_cache["queue"]
    return queue


def type_of(job: Job) -> JobType:
    """Return the type that a new job was made with, without descriptors."""
    job_type: JobType = job._state.fields_cache["job_type"]
    return job_type


def queues_with_due(jobs: Iterable[Job]) -> set[int]:
    """Return the ids of the queues of those new jobs that may run at once."""
    due = [own for own in map(vars, jobs) if own["scheduled_run_time"] <= own["create_time"]]
    return {own["queue_id"] for own in due}


def mark_in(row: Model, using: str) -> None:
    """Note in which database a row that is not stored yet will be."""
    row._state.db = using


def take_place_of(row: Model, stored: Model) -> None:
    """Make a row that was never stored stand for one that is."""
    row.pk, row._state = stored.pk, stored._state


def mark_stored(job: Job) -> None:
    """Note that a job is in the database now."""
    job._state.adding = False


def _state(using: str | None, cache: dict[str, Any], *, adding: bool = False) -> ModelState:
    state = ModelState()
    state.adding = adding
    state.db = using
    state.fields_cache = cache
    return state


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collection of cyclic garbage while many jobs or answers are made.

    They contain none, and looking for it takes a quarter of the time of making them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Memory(dict[Any, Any]):
    """Remembers what a function made of each moment: most jobs of a batch share them."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, key: Any) -> Any:
        made = self[key] = self._read(key)
        return made
