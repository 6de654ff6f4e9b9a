"""What a worker did, written for a whole batch in few statements."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction

from hipq_django.database import locked, max_rows_per_statement, worker_transaction
from hipq_django.exceptions import JobTimeout
from hipq_django.hotpath import hot_path
from hipq_django.models import Attempt
from hipq_django.moves.ends import discard_answers, record, span, success
from hipq_django.moves.hands import let_go, note_claim
from hipq_django.moves.rows import FREE, rows_of, set_values, update_each
from hipq_django.moves.waiting import next_time
from hipq_django.results import Claim, Decided, Failed, Result, Snoozed, Succeeded, Waits, WaitsFor
from hipq_django.retries import GiveUp, RetryAt, RetryIn, retry_time
from hipq_django.signals import job_failed, job_finished, send_after_commit
from hipq_django.states import Outcome, State, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from hipq_django.hotpath.base import Finished, Wanted
    from hipq_django.models import Job, Queue, Worker
    from hipq_django.parts import Expects

logger = logging.getLogger("hipq_django")


def persist(results: Sequence[Result], worker: Worker, now: datetime) -> list[Result]:
    """Write the results that are still the worker's to write; return those.

    A few statements for the whole batch: one for all that succeeded and one for all that wait;
    what those two leave is looked at row by row in one transaction.
    """
    written = _finish(results, worker, now)
    left = [r for r in results if r.claim.id not in written]
    if left:
        with worker_transaction(worker.using):
            written |= _persist_with_care(left, worker, now)
    return [r for r in results if r.claim.id in written]


def refill(
    done: Sequence[Succeeded], queue: Queue, worker: Worker, now: datetime, wanted: Wanted
) -> tuple[list[Succeeded], list[Job]]:
    """Write what succeeded in a limited queue and claim, at once, what there is room for.

    See `HotPath.refill`. Return what was written, and the claimed jobs.
    """
    path = hot_path(worker.using)
    finished, jobs = path.refill(_finished(done), queue, worker, now, wanted)
    written = [r for r in done if r.claim.id in finished]
    _announce_final(written, now)
    note_claim(jobs, worker, now, wanted.room)
    return written, jobs


def _finish(results: Sequence[Result], worker: Worker, now: datetime) -> set[int]:
    path = hot_path(worker.using)
    succeeded = [r for r in results if isinstance(r, Succeeded)]
    final = path.finish(_finished(succeeded), worker, now)
    _announce_final([r for r in succeeded if r.claim.id in final], now)
    waiting = [(r.claim.id, r.claim.attempt) for r in results if isinstance(r, Waits)]
    return final | path.let_go(waiting, worker, now)


def _finished(results: Iterable[Succeeded]) -> list[Finished]:
    return [(r.claim.id, r.claim.attempt, r.value, r.claim.work is Work.REQUEST) for r in results]


def _persist_with_care(results: Sequence[Result], worker: Worker, now: datetime) -> set[int]:
    using = worker.using
    rows = _locked_rows(using, [r.claim.id for r in results])
    mine = [r for r in results if _is_mine(r.claim, rows.get(r.claim.id), worker)]
    overtaken = {r.claim.id for r in mine if _is_overtaken(r, rows[r.claim.id])}
    let_go(sorted(overtaken), using, now)
    left = [r for r in mine if r.claim.id not in overtaken]
    expected: dict[int, Expects] = {r.claim.id: [] for r in left if isinstance(r, Waits)}
    expected |= {r.claim.id: r.expects for r in left if isinstance(r, WaitsFor)}
    _wait(expected, using, now)
    _succeed([r for r in left if isinstance(r, Succeeded)], using, now)
    _put_back([r for r in left if isinstance(r, Snoozed)], using, now)
    _fail([r for r in left if isinstance(r, Failed)], worker, now)
    for decided in [r for r in left if isinstance(r, Decided)]:
        _conclude(decided, using, now)
    return {r.claim.id for r in mine}


def _locked_rows(using: str, ids: Iterable[int]) -> dict[int, Job]:
    wanted = sorted(ids)
    size = max_rows_per_statement(using)
    found: dict[int, Job] = {}
    for start in range(0, len(wanted), size):
        rows = rows_of(using, wanted[start : start + size]).order_by("pk")
        rows = rows.only("state", "attempt", "answered", "worker_id")
        found |= {row.pk: row for row in locked(rows)}
    return found


def _is_mine(claim: Claim, row: Job | None, worker: Worker) -> bool:
    state = State.ERROR if claim.work is Work.DECISION else State.RUNNING
    if row and (row.state, row.attempt, row.worker_id) == (state, claim.attempt, worker.pk):
        return True
    logger.info("job=%s attempt=%s stale: somebody else was first", claim.id, claim.attempt)
    return False


def _is_overtaken(result: Result, row: Job) -> bool:
    """Whether the answer came while the handler was still running: the answer was first."""
    return result.claim.work is Work.REQUEST and row.answered


def _wait(expected: Mapping[int, Expects], using: str, now: datetime) -> None:
    """Let jobs wait in nobody's hands for what they expect."""
    values = {pk: {"expects": expects} for pk, expects in expected.items()}
    update_each(using, values, update_time=now, **FREE)


def _succeed(results: Sequence[Succeeded], using: str, now: datetime) -> None:
    values = {r.claim.id: {"result": r.value} for r in results}
    update_each(using, values, **success(now))
    _announce_final(results, now)


def _announce_final(results: Sequence[Succeeded], now: datetime) -> None:
    if not results or not job_finished.has_listeners():
        return
    for result in results:
        set_values(result.claim.job, {**success(now), "result": result.value})
    jobs = [r.claim.job for r in results]
    send_after_commit(job_finished, jobs, jobs[0].using)


def _put_back(results: Sequence[Snoozed], using: str, now: datetime) -> None:
    """Through error to retry, as the states demand, without an Attempt."""
    errors = {r.claim.id: {"error": r.reason} for r in results}
    update_each(using, errors, state=State.ERROR, update_time=now, **FREE)
    retries = {
        r.claim.id: next_time(
            r.claim.kept,
            now + timedelta(seconds=r.seconds),
            answered=r.claim.work is Work.RESPONSE,
        )
        for r in results
    }
    update_each(using, retries, state=State.RETRY)


def _fail(results: Sequence[Failed], worker: Worker, now: datetime) -> None:
    """To error, in nobody's hands: the retry handler decides in the next batch."""
    using = worker.using
    errors = {r.claim.id: {"error": r.error} for r in results}
    update_each(using, errors, state=State.ERROR, update_time=now, **FREE)
    record(
        [
            Attempt(
                job_id=r.claim.id,
                attempt=r.claim.attempt,
                error=r.error,
                traceback=r.traceback,
                exception_classes=r.classes,
                worker=worker.name,
                **span(r.claim.kept, now),
            )
            for r in results
        ],
        using,
    )
    for result in results:
        set_values(result.claim.job, {"state": State.ERROR, "error": result.error, **FREE})
    send_after_commit(job_failed, [r.claim.job for r in results], using)


def _conclude(result: Decided, using: str, now: datetime) -> None:
    """Move one job on from error, as its retry handler decided."""
    decision = result.decision
    if not isinstance(decision, GiveUp) and _retry(result, decision, using, now):
        return
    claim = result.claim
    timed_out = claim.failure is not None and claim.failure.is_a(JobTimeout)
    values = {
        "state": State.FINAL,
        "outcome": Outcome.TIMED_OUT if timed_out else Outcome.FAILED,
        "answered": False,
        "update_time": now,
        **FREE,
    }
    rows_of(using, [claim.id]).update(**values)
    set_values(claim.job, values)
    send_after_commit(job_finished, [claim.job], using)


def _retry(result: Decided, decision: RetryIn | RetryAt, using: str, now: datetime) -> bool:
    job = result.claim.job
    set_values(job, result.changes)
    answered = job.answered and not decision.resend
    values = {**result.changes, **next_time(job, retry_time(decision, now), answered=answered)}
    values |= {"state": State.RETRY, "update_time": now, **FREE}
    if decision.resend:
        values["answered"] = False
    try:
        with transaction.atomic(using=using, savepoint="job_key" in result.changes):
            rows_of(using, [result.claim.id]).update(**values)
    except IntegrityError:
        if "job_key" not in result.changes:
            raise
        logger.exception("job=%s key=%r of its retry handler is taken", job.pk, job.job_key)
        return False
    if decision.resend:
        discard_answers([job.pk], using)
    set_values(job, values)
    return True
