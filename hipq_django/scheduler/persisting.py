"""Persists the results of a batch; each leaves it once it is committed, or no longer counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from math import inf

from django.db import Error, connections, transaction

from hipq_django import events, extensions, transitions
from hipq_django.answers import early
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import LockedRowError
from hipq_django.database.transactions import worker_transaction
from hipq_django.models import Worker
from hipq_django.scheduler import companions
from hipq_django.scheduler.companions import Persist
from hipq_django.scheduler.current_batch import Lease
from hipq_django.transitions.reports import log_results
from hipq_django.transitions.values import (
    Claim,
    Decided,
    Ended,
    Failed,
    PartlyWrittenError,
    Persisted,
    Released,
    Result,
    Snoozed,
    Succeeded,
    WaitsFor,
    refused,
    tell_of_written,
)

MAX_BYTES = 8_000_000
"""How much is written at once, unless a single result is larger."""


def persist_leased(
    lease: Lease, results: Sequence[Result], worker: Worker, until: float = inf
) -> list[Result]:
    """Persist leased results; return those that left the batch, also those that came too late.

    After the moment `until`, by the steady clock, nothing more is begun.
    """
    for part in _parts(results):
        _persist_part(lease, part, worker)
        if steady() >= until:
            break
    if not lease.results:  # as nearly always
        return list(results)
    return [result for result in results if result not in lease]


def _parts(results: Sequence[Result]) -> Iterator[Sequence[Result]]:
    """Yield the results in parts that one statement writes, of a size that it can take.

    Each kind of result is written by statements of its own, which need tables of their own.
    """
    types = set(map(type, results))
    if types == {Succeeded} or (len(types) == 1 and not extensions.companions()):  # mostly
        yield from _of_size(results)
        return
    kinds: dict[object, list[Result]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    for kind in kinds.values():
        yield from _of_size(kind)


def _kind(result: Result) -> object:
    """Return what results have in common that are written together."""
    if result.claim.extra is not None:
        return "by a companion"
    return _WRITTEN_LIKE.get(type(result), type(result))


_WRITTEN_LIKE = {Decided: Failed, Released: Snoozed}


def _of_size(results: Sequence[Result]) -> Iterator[Sequence[Result]]:
    if sum([result.size for result in results]) <= MAX_BYTES:  # as nearly always
        yield results
        return
    part: list[Result] = []
    size = 0
    for result in results:
        if part and size + result.size > MAX_BYTES:
            yield part
            part, size = [], 0
        part.append(result)
        size += result.size
    yield part


def _persist_part(lease: Lease, results: Sequence[Result], worker: Worker) -> None:
    """Persist results; one that is refused is the error of its attempt."""
    of_claim = {result.claim: result for result in results}

    def write(claims: Sequence[Claim]) -> int:
        left = [of_claim[claim] for claim in claims if of_claim[claim] in lease]
        _write(lease, left, worker)
        return len(left)

    def fail(claim: Claim, error: Exception) -> None:
        _write_instead(lease, of_claim[claim], error, worker)

    lease.isolation.move(list(of_claim), write, fail)
    lease.defer()


def _write(
    lease: Lease, results: Sequence[Result], worker: Worker, write: Persist = transitions.persist
) -> None:
    """Write results and let go of them; a transaction of the caller stays usable."""
    is_inside = connections[worker.using].in_atomic_block
    try:
        with transaction.atomic(using=worker.using) if is_inside else nullcontext():
            persisted = persist(results, worker, clock.now(worker.using), write)
    except PartlyWrittenError as error:
        forget_written(lease, error.persisted)
        raise error.cause from error.cause.__cause__
    forget_written(lease, persisted)


def _write_instead(lease: Lease, result: Result, error: Exception, worker: Worker) -> None:
    """Write what becomes of a result that is refused alone."""
    if not isinstance(error, Error) and result.claim.extra is None:
        _write_row_by_row(lease, result, error, worker)
        return
    _write(lease, [companions.instead_of(result, error) or refused(result, error)], worker)
    if result in lease:
        raise LockedRowError


def _write_row_by_row(lease: Lease, result: Result, error: Exception, worker: Worker) -> None:
    """Write a result that failed before the database saw it.

    The fault may be that of the fast path; it must not make a failure of a job's success.
    """
    try:
        _write(lease, [result], worker, transitions.persist_row_by_row)
    except Exception as second:
        _write(lease, [refused(result, second)], worker)
    else:
        events.error(
            "batch_write_failed", "but it was written row by row", row=result.claim, exception=error
        )  # fmt: skip


def forget_written(lease: Lease, persisted: Persisted) -> None:
    """Let go of what is committed, and leave alone what somebody has locked."""
    lease.forget([*persisted.written, *persisted.lost])
    for result in persisted.locked:
        lease.isolation.leave(result.claim, LockedRowError())
    log_results(persisted)


def persist(
    results: Sequence[Result], worker: Worker, now: datetime, write: Persist = transitions.persist
) -> Persisted:
    """Persist results, and what companions have beside them; return what became of them."""
    if Ended in set(map(type, results)):
        ended = [result for result in results if isinstance(result, Ended)]
        others = [result for result in results if not isinstance(result, Ended)]
        return persist(others, worker, now, write).joined(Persisted(ended, [], []))
    if extensions.companions():
        return companions.persist(results, worker, now, partial(persist_jobs, write=write))
    return persist_jobs(results, worker, now, write)


def persist_jobs(
    results: Sequence[Result], worker: Worker, now: datetime, write: Persist
) -> Persisted:
    """Persist results of jobs alone; return what became of them."""
    if WaitsFor not in set(map(type, results)):
        return write(results, worker, now)
    several = [result for result in results if isinstance(result, WaitsFor)]
    others = [result for result in results if not isinstance(result, WaitsFor)]
    persisted = write(others, worker, now)
    try:
        return persisted.joined(_persist_waiting(several, worker, now, write))
    except Exception as error:
        tell_of_written(persisted, error)
        raise


def _persist_waiting(
    several: Sequence[Result], worker: Worker, now: datetime, write: Persist
) -> Persisted:
    """Let jobs wait for several answers, and count those that came before this was known."""
    with worker_transaction(worker.using):
        waiting = write(several, worker, now)
        early.count_early([result.claim.id for result in waiting.written], now, worker.using)
    return waiting
