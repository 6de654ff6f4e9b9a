"""Persists the results of a batch; each leaves it once it is committed, or no longer counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    Persisted,
    Released,
    Result,
    Snoozed,
    Succeeded,
    WaitsFor,
    all_of,
    refused,
)

MAX_BYTES = 8_000_000
"""How much is written at once, unless a single result is larger."""


def write_leased(
    lease: Lease, results: Sequence[Result], worker: Worker, until: float = inf
) -> list[Result]:
    """Write leased results; return those that left the batch, also those that came too late.

    After the moment `until`, by the steady clock, nothing more is begun.
    """
    for part in _parts(results):
        _write_part(lease, part, worker)
        if steady() >= until:
            break
    if not lease.results:  # as nearly always
        return list(results)
    return [result for result in results if result not in lease]


def _parts(results: Sequence[Result]) -> Iterator[Sequence[Result]]:
    """Yield the results in parts that one statement writes, of a size that it can take.

    Each kind of result is written by statements of its own, which need tables of their own.
    """
    if set(map(type, results)) == {Succeeded} and not extensions.companions():  # mostly
        yield from _of_size(results)
        return
    kinds: dict[object, list[Result]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    for kind in kinds.values():
        yield from _of_size(kind)


def _kind(result: Result) -> object:
    """Return what results have in common that are written together."""
    if result.claim.extra is not None and not isinstance(result, Ended):
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


def _write_part(lease: Lease, results: Sequence[Result], worker: Worker) -> None:
    """Write results of one kind; one that is refused is the error of its attempt."""

    def write(claims: Sequence[Claim]) -> int:
        some = results
        if len(claims) < len(results):  # something has failed
            chosen = set(claims)
            some = [r for r in results if r in lease and r.claim in chosen]
        if some:
            _write(lease, some, worker)
        return len(some)

    def fail(claim: Claim, error: Exception) -> None:
        [result] = [result for result in results if result.claim is claim]
        _write_instead(lease, result, error, worker)

    lease.isolation.move([result.claim for result in results], write, fail)
    lease.defer()


def _write(
    lease: Lease, results: Sequence[Result], worker: Worker, persist: Persist = transitions.persist
) -> None:
    """Write results and let go of them; a transaction of the caller stays usable."""
    written = _persist(results, worker, clock.now(worker.using), persist)
    if connections[worker.using].in_atomic_block:
        with transaction.atomic(using=worker.using):
            written = iter(list(written))
    for persisted in written:
        forget_written(lease, persisted)


def _write_instead(lease: Lease, result: Result, error: Exception, worker: Worker) -> None:
    """Write what becomes of a result that cannot be written alone.

    If it failed before the database saw it, the fault may be that of the fast path, which must not
    make a failure of a job's success.
    """
    if not isinstance(error, Error) and result.claim.extra is None:
        try:
            _write(lease, [result], worker, transitions.persist_row_by_row)
        except Exception as second:
            error = second
        else:
            sentence = "but it was written row by row"
            events.error("batch_write_failed", sentence, row=result.claim, exception=error)
            return
    _write(lease, [companions.instead_of(result, error) or refused(result, error)], worker)
    if result in lease:
        raise LockedRowError


def forget_written(lease: Lease, persisted: Persisted) -> None:
    """Let go of what is committed, and leave alone what somebody has locked."""
    lease.forget([*persisted.written, *persisted.dropped])
    for result in persisted.locked:
        lease.isolation.leave(result.claim, LockedRowError())
    log_results(persisted)


def _persist(
    results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
) -> Iterator[Persisted]:
    """Write results, and what companions have beside them."""
    if set(map(type, results)) == {Ended}:
        yield Persisted(results, [], [])
        return
    if results[0].claim.extra is None:
        yield from persist_jobs(results, worker, now, persist)
    else:
        jobs_by = partial(persist_jobs, persist=persist)
        yield from companions.write(results, worker, now, jobs_by)


def persist_jobs(
    results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
) -> Iterator[Persisted]:
    """Write results of jobs alone."""
    if WaitsFor not in set(map(type, results)):
        yield from persist(results, worker, now)
        return
    several = [result for result in results if isinstance(result, WaitsFor)]
    others = [result for result in results if not isinstance(result, WaitsFor)]
    if others:
        yield from persist(others, worker, now)
    with worker_transaction(worker.using):
        waiting = all_of(persist(several, worker, now))
        # Those that came before this was known.
        early.count_early([result.claim.id for result in waiting.written], now, worker.using)
    yield waiting
