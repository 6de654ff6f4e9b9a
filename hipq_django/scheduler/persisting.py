"""Persists the results of a batch; each leaves it once it is committed, or no longer counts.

A batch that the database refuses is written in ever smaller parts: a result that is refused alone
fails alone. What the server cancels is written in smaller parts by the next passes. Only an error
that may pass by itself, such as an outage, leaves the whole for a later try.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from math import inf
from typing import NamedTuple

from django.db import Error, connections, transaction

from hipq_django import events, extensions, transitions
from hipq_django.answers import early
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import (
    CANCELLED_SECONDS,
    PASSING_SECONDS,
    is_cancelled,
    is_locked_out,
    is_refusal,
    may_pass,
)
from hipq_django.database.refused_rows import halves
from hipq_django.database.transactions import worker_transaction
from hipq_django.models import Worker
from hipq_django.scheduler import companions
from hipq_django.scheduler.companions import Persist
from hipq_django.scheduler.current_batch import Lease
from hipq_django.transitions.reports import log_results
from hipq_django.transitions.values import (
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
)

MAX_BYTES = 8_000_000
"""How much is written at once, unless a single result is larger."""


def persist_leased(
    lease: Lease, results: Sequence[Result], worker: Worker, until: float = inf
) -> list[Result]:
    """Persist leased results; return those that left the batch, also those that came too late.

    After the moment `until`, by the steady clock, or after a statement that the server cancelled,
    nothing more is begun.
    """
    for part in _parts(lease, results):
        if not _persist_part(lease, part, worker) or steady() >= until:
            break
    if not lease.results:  # as nearly always
        return list(results)
    return [result for result in results if result not in lease]


def _parts(lease: Lease, results: Sequence[Result]) -> Iterator[list[Result]]:
    """Yield the results in parts; last, and each alone, those that were cancelled alone."""
    if not lease.has_slow:  # as nearly always
        yield from _of_kinds(lease, results)
        return
    slow = [result for result in results if lease.is_slow(result)]
    yield from _of_kinds(lease, [result for result in results if not lease.is_slow(result)])
    yield from ([result] for result in slow)


def _of_kinds(lease: Lease, results: Sequence[Result]) -> Iterator[list[Result]]:
    """Yield the results in parts of one kind, and of a size that one statement can take.

    Each kind needs tables of its own: while one of them is locked, the other kinds are written. It
    costs nothing, because each kind is written by statements of its own.
    """
    types = set(map(type, results))
    if types == {Succeeded} or (len(types) == 1 and not extensions.companions()):  # mostly
        yield from _of_size(lease, results)
        return
    kinds: dict[object, list[Result]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    for kind in kinds.values():
        yield from _of_size(lease, kind)


def _kind(result: Result) -> object:
    """Return what results have in common that are written together."""
    if result.claim.extra is not None:
        return "by a companion"
    return _WRITTEN_LIKE.get(type(result), type(result))


_WRITTEN_LIKE = {Decided: Failed, Released: Snoozed}


def _of_size(lease: Lease, results: Sequence[Result]) -> Iterator[list[Result]]:
    are_few = len(results) <= lease.most
    if are_few and sum([result.size for result in results]) <= MAX_BYTES:  # as nearly always
        yield list(results)
        return
    part: list[Result] = []
    size = 0
    for result in results:
        if part and (len(part) >= lease.most or size + result.size > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(result)
        size += result.size
    if part:
        yield part


def _persist_part(lease: Lease, results: list[Result], worker: Worker) -> bool:
    """Persist results; if refused, each half by itself, and a single result as its error.

    Return False if the server cancelled a statement: another one might take just as long.
    """
    error = _persist_together(lease, results, worker)
    left = [result for result in results if result in lease] if error else []
    if error is None or not left:
        return True
    if len(left) == 1:
        return _persist_alone(lease, left[0], error, worker)
    if is_cancelled(error):
        lease.note_cancelled(left)
        return False
    if is_locked_out(error):
        _persist_a_half(lease, left, worker)
        return True
    return all(_persist_part(lease, half, worker) for half in halves(left))


def _persist_together(
    lease: Lease, results: Sequence[Result], worker: Worker, write: Persist = transitions.persist
) -> Exception | None:
    """Persist results and let go of them; return why those that are left are not written."""
    persisted = _try_to_persist(results, worker, write)
    if isinstance(persisted, Persisted):
        forget_written(lease, persisted)
        lease.note_written()
        return None
    if isinstance(persisted, PartlyWrittenError):
        forget_written(lease, persisted.persisted)
        persisted = persisted.cause
        if not _concerns_results(persisted):
            raise persisted
    return persisted


def _persist_a_half(lease: Lease, results: list[Result], worker: Worker) -> None:
    """Persist half of the results that wait for a lock of others, and keep the rest for later.

    It may be on a table that all of them need, or on what a trigger needs for one of them. Any half
    may be without that one; to try more of them would take the time of a wait each.
    """
    _persist_together(lease, random.sample(results, len(results) // 2), worker)
    lease.defer([result for result in results if result in lease])


def _defer(lease: Lease, result: Result, _: Exception) -> None:
    lease.defer([result])


def _note_short(lease: Lease, result: Result, _: Exception) -> None:
    lease.note_short(result)


class _Kept(NamedTuple):
    """When a result that was not written alone is kept for a later try, and how."""

    has_cause: Callable[[Exception], bool]
    waited: Callable[[Lease, Result], float]
    """For how many seconds it was tried already."""
    seconds: float
    """For how long it is kept; after that its attempt fails."""
    keep: Callable[[Lease, Result, Exception], None]


_KEPT = (
    _Kept(is_locked_out, Lease.short_for, inf, _defer),
    _Kept(may_pass, Lease.short_for, PASSING_SECONDS, _note_short),
    _Kept(is_cancelled, Lease.cancelled_for, CANCELLED_SECONDS, Lease.put_off),
)
"""The first that applies counts. If none does, the result is at fault, and its attempt fails."""


def _persist_alone(lease: Lease, result: Result, error: Exception, worker: Worker) -> bool:
    """Persist a result that was refused, or keep it, or persist its error instead.

    Return False if the server cancelled the statement.
    """
    cause = error if isinstance(error, Error) else _try_row_by_row(lease, result, error, worker)
    if cause is None:
        return True
    kept = (rule for rule in _KEPT if rule.has_cause(cause))
    rule = next((rule for rule in kept if rule.waited(lease, result) < rule.seconds), None)
    if rule is None:
        _persist_refused(lease, result, cause, worker)
    else:
        rule.keep(lease, result, cause)
    return not is_cancelled(cause)


def _try_row_by_row(
    lease: Lease, result: Result, error: Exception, worker: Worker
) -> Exception | None:
    """Write a result row by row that failed before the database saw it; return why it failed.

    The fault may be that of the fast path; it must not make a failure of a job's success.
    """
    again = _persist_together(lease, [result], worker, transitions.persist_row_by_row)
    if again is None:
        sentence = "but it was written row by row"
        events.error("batch_write_failed", sentence, row=result.claim, exception=error)
    return again


def _persist_refused(lease: Lease, result: Result, error: Exception, worker: Worker) -> None:
    persisted = _try_to_persist([refused(result, error)], worker)
    if isinstance(persisted, Persisted) and not persisted.locked:
        lease.forget([result])
        log_results(persisted)
        return
    if isinstance(persisted, Persisted) or is_locked_out(persisted):
        lease.defer([result])
    elif is_cancelled(persisted):  # not the result is too slow, but the server
        lease.put_off(result, persisted, anew=True)
    else:
        lease.refuse(result, persisted)


def _try_to_persist(
    results: Sequence[Result], worker: Worker, write: Persist = transitions.persist
) -> Persisted | Exception:
    """Persist results; return what became of them, or why the database writes none of them.

    A transaction of the caller stays usable.
    """
    is_inside = connections[worker.using].in_atomic_block
    try:
        with transaction.atomic(using=worker.using) if is_inside else nullcontext():
            return persist(results, worker, clock.now(worker.using), write)
    except Exception as error:
        if not _concerns_results(error):
            raise
        return error


def _concerns_results(error: Exception) -> bool:
    """Return whether smaller parts, or a later try, may be written."""
    return is_refusal(error) or is_locked_out(error) or is_cancelled(error)


def forget_written(lease: Lease, persisted: Persisted) -> None:
    """Let go of what is committed."""
    lease.forget([*persisted.written, *persisted.lost])
    lease.defer(persisted.locked)
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
    waiting = transitions.one_by_one_if_locked_out(
        several, lambda some: _persist_waiting(some, worker, now, write)
    )
    return persisted.joined(waiting)


def _persist_waiting(
    several: Sequence[Result], worker: Worker, now: datetime, write: Persist
) -> Persisted:
    """Let jobs wait for several answers, and count those that came before this was known."""
    with worker_transaction(worker.using):
        waiting = write(several, worker, now)
        early.count_early([result.claim.id for result in waiting.written], now, worker.using)
    return waiting
