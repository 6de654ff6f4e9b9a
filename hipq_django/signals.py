"""Signals, sent after the commit. `sender` is the class Job, `job` the job.

A receiver that raises is logged and harms neither the job nor the worker. Without a receiver
nothing is done.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.dispatch import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hipq_django.models import Job

logger = logging.getLogger("hipq_django")

job_enqueued = Signal()
"""A job was created."""

job_started = Signal()
"""A worker claimed the job; its handler starts next."""

job_failed = Signal()
"""An attempt ended in an error; `job.state` is error, retry or final."""

job_finished = Signal()
"""The job is final; `job.outcome` says how it ended."""


def send_after_commit(signal: Signal, jobs: Iterable[Job], using: str) -> None:
    """Send `signal` for each job once the current transaction is committed."""
    if signal.has_listeners():
        for job in jobs:
            transaction.on_commit(partial(_send, signal, job), using=using)


def _send(signal: Signal, job: Job) -> None:
    results: list[tuple[Any, Any]] = signal.send_robust(type(job), job=job)
    for receiver, result in results:
        if isinstance(result, Exception):
            raised = job.masked(repr(result))
            logger.error("job=%s receiver=%r raised %s", job.pk, receiver, raised)
