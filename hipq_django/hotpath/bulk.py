"""Inserts many new jobs: by COPY where psycopg 3 is the driver, else as one JSON document."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from hipq_django.hotpath.dialects import Dialect
    from hipq_django.models import Job

ROWS_PER_INSERT = 5_000
LINES_PER_WRITE = 500

# The columns of a new job that differ from job to job, and what is the same for all.
_OWN = {
    "queue_id": "bigint",
    "job_type_id": "bigint",
    "job_data": "jsonb",
    "job_key": "text",
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
_SAME = {
    "state": "initial",
    "outcome": "NONE",
    "error": '"NONE"',
    "result": "null",
    "expects": "[]",
    "attempt": "0",
    "work": "NONE",
    "answered": "0",
    "prefetched": "0",
    "progress": "0",
    "progress_message": "NONE",
    "extended_seconds": "0",
}
_COLUMNS = ", ".join([*_OWN, *_SAME])
_COLUMNS_IN_COPY = f"id, {_COLUMNS}"
_SAME_IN_COPY = "\t".join(_SAME.values())

_SAME_IN_SQL = ", ".join(f"'{value}'" for value in _SAME.values())
INSERT_ONE = (
    f"INSERT INTO hipq_job ({', '.join(_OWN)}, origin_id, {', '.join(_SAME)}) "
    f"VALUES ({', '.join(['%s'] * len(_OWN))}, %s, {_SAME_IN_SQL}) RETURNING id"
)
"""The INSERT of one `document_row` and the id of the job that it comes from."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def copy_in(cursor: Any, jobs: Iterable[Job], text_of: Callable[[datetime], str]) -> None:
    """Insert jobs that have their ids; the server reads while we still write."""
    with cursor.copy(f"COPY hipq_job ({_COLUMNS_IN_COPY}) FROM STDIN") as copy:
        for lines in _chunks(_lines(jobs, text_of)):
            copy.write(lines)


def _lines(jobs: Iterable[Job], text_of: Callable[[datetime], str]) -> Iterator[str]:
    for job in jobs:
        data = _encode(job.job_data).replace("\\", "\\\\")
        key = job.job_key.replace("\\", "\\\\")
        windows = _encode(job.time_windows) if job.time_windows else "[]"
        created = text_of(job.create_time)
        yield (
            f"{job.id}\t{job.queue_id}\t{job.job_type_id}\t{data}\t{key}\t{job.timeout}\t"
            f"{text_of(job.scheduled_run_time)}\t{job.priority}\t{job.throttle_factor}\t{windows}\t"
            f"{job.rank}\t{created}\t{created}\t{created}\t{_SAME_IN_COPY}\n"
        )


def _chunks(lines: Iterator[str]) -> Iterator[str]:
    while chunk := "".join(islice(lines, LINES_PER_WRITE)):
        yield chunk


def insert_statement(dialect: Dialect) -> str:
    """Return the INSERT of a JSON document of `document_row`s; it returns the ids."""
    fields = [dialect.field.format(index, kind) for index, kind in enumerate(_OWN.values())]
    return (
        f"INSERT INTO hipq_job ({_COLUMNS}) SELECT {', '.join(fields)}, {_SAME_IN_SQL} "
        f"FROM {dialect.rows} RETURNING id"
    )


def document_row(job: Job, text_of: Callable[[datetime], Any]) -> list[Any]:
    """Return a new job as a row of the document."""
    created = text_of(job.create_time)
    return [
        job.queue_id,
        job.job_type_id,
        _encode(job.job_data),
        job.job_key,
        job.timeout,
        text_of(job.scheduled_run_time),
        job.priority,
        str(job.throttle_factor),
        _encode(job.time_windows),
        job.rank,
        created,
        created,
        created,
    ]
