"""The job types that several tests share; a test's own job type stands beside the test."""

from __future__ import annotations

from typing import Any

import hipq_django as hipq
from hipq_django.models import Job


@hipq.job_type("echo")
def echo(job: Job) -> Any:
    """Succeed at once; the result is the job's data."""
    return job.job_data


@hipq.job_type("ask")
def ask(job: Job) -> Any:
    """Send nothing and wait for the answer."""
    del job
    return hipq.WAIT


@hipq.job_type("boom")
def boom(job: Job) -> Any:
    """Fail with the message that the data gives."""
    raise RuntimeError(job.job_data.get("message", "boom"))
