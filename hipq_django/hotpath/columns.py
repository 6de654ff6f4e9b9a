"""A new job as a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.payloads import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from hipq_django.models import Job

# The columns of a new job that differ from job to job, and what is the same for all. Most jobs of
# a batch share all but the first two.
OWN = {
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
SAME = {
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
SAME_IN_SQL = ", ".join(f"'{value}'" for value in SAME.values())


def document_row(job: Job, text_of: Callable[[datetime], Any]) -> list[Any]:
    """Return the values of a new job in the order of `OWN`."""
    return [encode_json(job.job_data), job.job_key, *shared_row(job, text_of)]


def shared_row(job: Job, text_of: Callable[[datetime], Any]) -> list[Any]:
    """Return the part of it that most jobs of a batch have in common."""
    return [
        job.queue_id,
        job.job_type_id,
        job.timeout,
        text_of(job.scheduled_run_time),
        job.priority,
        str(job.throttle_factor),
        encode_json(job.time_windows),
        job.rank,
        text_of(job.deadline),
        text_of(job.create_time),
        text_of(job.update_time),
    ]
