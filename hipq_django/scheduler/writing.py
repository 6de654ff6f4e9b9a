"""Writes the results of a batch; each leaves it once it is committed, or is nobody's business.

What the database refuses is written in ever smaller parts: a result that is refused alone fails
alone. Only what may pass by itself, an outage say, is left for a later try as a whole.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING

from django.db import connections, transaction

from hipq_django import transitions
from hipq_django.answers import early
from hipq_django.database import clock
from hipq_django.database.errors import is_refusal, may_pass
from hipq_django.database.transactions import worker_transaction
from hipq_django.transitions.values import Persisted, Result, WaitsFor, log_results, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from hipq_django.models import Worker
    from hipq_django.scheduler.current_batch import Lease

logger = logging.getLogger("hipq_django")

MAX_BYTES = 8_000_000
"""So much is written at once, unless a single result is larger."""

PASSING_SECONDS = 5.0
"""For how long a result is tried again whose refusal may pass; then it counts as refused."""


def write(lease: Lease, results: Sequence[Result], worker: Worker) -> list[Result]:
    """Write leased results; return those that left the batch, also those that came too late."""
    for part in _parts(results):
        _write(lease, part, worker)
    return [result for result in results if result not in lease]


def _parts(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Yield the results in parts of a size that one statement can take."""
    if results and sum([result.size for result in results]) <= MAX_BYTES:  # as nearly always
        yield list(results)
        return
    part: list[Result] = []
    size = 0
    for result in results:
        if part and size + result.size > MAX_BYTES:
            yield part
            part, size = [], 0
        part.append(result)
        size += result.size
    if part:
        yield part


def _write(lease: Lease, results: list[Result], worker: Worker) -> None:
    try:
        with _savepoint(worker.using):
            persisted = persist(results, worker, clock.now(worker.using))
    except Exception as error:
        if not is_refusal(error):
            raise
        _write_refused(lease, results, worker, error)
    else:
        settle(lease, persisted)


def _write_refused(lease: Lease, results: list[Result], worker: Worker, error: Exception) -> None:
    """Write each half by itself; a single result is replaced by the error."""
    if len(results) > 1:
        middle = len(results) // 2
        _write(lease, results[:middle], worker)
        _write(lease, results[middle:], worker)
        return
    [result] = results
    if may_pass(error) and lease.waited(result) < PASSING_SECONDS:
        lease.defer(results)
        return
    try:
        with _savepoint(worker.using):
            persisted = persist([refused(result, error)], worker, clock.now(worker.using))
    except Exception as again:
        if not is_refusal(again):
            raise
        logger.exception(
            "job=%s attempt=%s cannot be written", result.claim.id, result.claim.attempt
        )
        lease.defer(results)
        return
    if persisted.locked:
        lease.defer(results)
        return
    lease.settle(results)
    log_results(persisted.written)


def settle(lease: Lease, persisted: Persisted) -> None:
    """Let go of what is committed."""
    lease.settle([*persisted.written, *persisted.lost])
    lease.defer(persisted.locked)
    log_results(persisted.written)


def persist(results: Sequence[Result], worker: Worker, now: datetime) -> Persisted:
    """Write results; return what became of them."""
    several = [result for result in results if isinstance(result, WaitsFor)]
    if not several:
        return transitions.persist(results, worker, now)
    others = [result for result in results if not isinstance(result, WaitsFor)]
    persisted = transitions.persist(others, worker, now)
    # With the answers that came before it was known what they are parts of.
    with worker_transaction(worker.using):
        waiting = transitions.persist(several, worker, now)
        early.count_early([result.claim.id for result in waiting.written], now, worker.using)
    return persisted.joined(waiting)


def _savepoint(using: str) -> AbstractContextManager[None]:
    """Return what keeps a transaction of the caller's usable where the database refuses a value."""
    if connections[using].in_atomic_block:
        return transaction.atomic(using=using)
    return nullcontext()
