"""Inserts many new jobs: by COPY where psycopg 3 is the driver, else as one JSON document."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hipq_django.domain.serialization import encode_json
from hipq_django.engines.rows import CONSTANT_COLUMNS, CONSTANTS_IN_SQL, JOB_COLUMNS, shared_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from hipq_django.engines.dialects import Dialect
    from hipq_django.models import Job

ROWS_PER_INSERT = 5_000
LINES_PER_WRITE = 50
"""So few that a write ends before the server has read it, and the next lines are made meanwhile."""

_COLUMNS = ", ".join([*JOB_COLUMNS, *CONSTANT_COLUMNS])
_SAME_IN_COPY = "\t".join(CONSTANT_COLUMNS.values())
_shared_values = attrgetter(*list(JOB_COLUMNS)[2:])


def copy_in(cursor: Any, jobs: Iterable[Job], text_of: Callable[[datetime], str]) -> None:
    """Insert jobs that have their ids; the server reads while we still write."""
    with cursor.copy(f"COPY hipq_job (id, {_COLUMNS}) FROM STDIN") as copy:
        for lines in _chunks(_lines(jobs, text_of)):
            copy.write(lines)


def _lines(jobs: Iterable[Job], text_of: Callable[[datetime], str]) -> Iterator[str]:
    shared, rest = None, ""
    for job in jobs:
        if (values := _shared_values(job)) != shared:
            shared, rest = values, "\t".join(map(str, shared_row(job, text_of)))
        data = encode_json(job.job_data).replace("\\", "\\\\")
        key = job.job_key.replace("\\", "\\\\")
        yield f"{job.id}\t{data}\t{key}\t{rest}\t{_SAME_IN_COPY}\n"


def _chunks(lines: Iterator[str]) -> Iterator[str]:
    while chunk := "".join(islice(lines, LINES_PER_WRITE)):
        yield chunk


def insert_statement(dialect: Dialect) -> str:
    """Return the INSERT of a JSON document of `document_row`s; it returns the ids."""
    fields = [dialect.field.format(index, kind) for index, kind in enumerate(JOB_COLUMNS.values())]
    return (
        f"INSERT INTO hipq_job ({_COLUMNS}) SELECT {', '.join(fields)}, {CONSTANTS_IN_SQL} "
        f"FROM {dialect.rows} RETURNING id"
    )
