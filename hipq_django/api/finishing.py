"""The end of a job in the same transaction as the writes of its handler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.db import transaction

from hipq_django import transitions
from hipq_django.api.attempts import lock_attempt
from hipq_django.database import clock
from hipq_django.database.errors import LockedRowError, telling_locks
from hipq_django.database.transactions import bound_lock_waits, bound_silence, write_transaction
from hipq_django.domain.retries import Snooze
from hipq_django.domain.states import Phase
from hipq_django.domain.validation import checked_result
from hipq_django.exceptions import InvalidJobError, StaleAttemptError
from hipq_django.models import Job

LOCK_SECONDS = 5
"""How long the end of a job waits for locks of others; then the job is put back."""

SNOOZE_SECONDS = 1.0


@contextmanager
def finishing(job: Job, result: Any = None) -> Iterator[None]:
    """End the running job with `result`, together with what the block writes to its database.

    Both are one transaction, so it happens exactly once, or not at all: if the block raises, the
    handler goes on and the job is not ended. After the block the handler only returns. Raise
    `StaleAttemptError`, with nothing written, if the attempt is over or was answered meanwhile;
    `InvalidJobError` inside another transaction, or if the job was ended so before; `Snooze`,
    which puts the job back, if another transaction holds its row for more than five seconds.
    """
    stored, _ = checked_result(f"finishing {job}", result)
    with ending(job):
        yield
        bound_silence(job.using)  # not before: the block may take its time
        row = lock_attempt(job, "finishing")
        if row.has_pending_answer and row.phase != Phase.RESPONSE:
            raise StaleAttemptError(
                f"finishing: {row} was answered while its handler ran, and the answer counts. "
                "What the block has written is undone; end the handler."
            )
        transitions.finish_locked([(row, stored)], clock.now(job.using), job.using)


@contextmanager
def ending(job: Job) -> Iterator[None]:
    """Open the transaction that ends a job, whose handler only returns afterwards."""
    if job.has_finished:
        raise InvalidJobError(f"finishing: {job} was ended so already; return from the handler.")
    _check_outermost(job)
    try:
        with telling_locks(), write_transaction(job.using):
            # Before what the block wants to be done after the commit, which may raise.
            transaction.on_commit(partial(setattr, job, "has_finished", True), using=job.using)
            bound_lock_waits(job.using, LOCK_SECONDS)
            yield
    except LockedRowError as error:
        if job.has_finished:
            raise
        raise Snooze(SNOOZE_SECONDS) from error
    job.has_finished = True  # also in a transaction of a test, which is not committed


def _check_outermost(job: Job) -> None:
    try:
        with transaction.atomic(using=job.using, durable=True):
            pass
    except RuntimeError as error:
        raise InvalidJobError(
            f"finishing {job}: a transaction is open, and its end would decide whether the job "
            "has ended; use finishing outside of it."
        ) from error
