"""Writes the results that the fast path leaves, row by row, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from hipq_django import events
from hipq_django.database.errors import SkippedRowError
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.parts import Expects
from hipq_django.domain.retries import GiveUp, RetryAt, RetryIn, retry_time
from hipq_django.domain.states import NONE, Outcome, Phase, State
from hipq_django.domain.suspects import was_lost
from hipq_django.extensions import note_ended, note_given_up
from hipq_django.models import Attempt, Job, Worker
from hipq_django.signals import job_failed, job_finished
from hipq_django.transitions.decisions import failed_as
from hipq_django.transitions.edits import next_time
from hipq_django.transitions.history import attempt_of, record_attempts
from hipq_django.transitions.outcomes import (
    announce,
    discard_answers,
    failed_values,
    final_values,
    note_succeeded,
    succeed,
)
from hipq_django.transitions.ownership import put_back, release
from hipq_django.transitions.updates import (
    UNOWNED,
    chunks,
    rows_of,
    set_values,
    update_each,
)
from hipq_django.transitions.values import (
    Claim,
    Decided,
    Failed,
    Persisted,
    Released,
    Result,
    Snoozed,
    Succeeded,
    Waits,
    WaitsFor,
)

_GUESSED = (Attempt.Kind.TIMED_OUT, Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER)
"""The ends of attempts whose handlers may still return."""


def persist_row_by_row(
    results: Sequence[Result], worker: Worker, now: datetime
) -> Iterator[Persisted]:
    """Write results in one transaction; rows that others have locked are left."""
    with worker_transaction(worker.using):
        persisted = _persist(results, worker, now)
    yield persisted


def _persist(results: Sequence[Result], worker: Worker, now: datetime) -> Persisted:
    using = worker.using
    free = _rows(using, [r.claim.id for r in results], is_locking=True)
    missing = [r for r in results if r.claim.id not in free]
    others = _rows(using, [r.claim.id for r in missing], is_locking=False)
    locked_by_others = [r for r in missing if _may_be_written(r, others, worker)]
    mine = [r for r in results if _is_mine(r.claim, free.get(r.claim.id), worker)]
    overtaken = {r.claim.id for r in mine if _was_answered_first(r, free[r.claim.id])}
    release(sorted(overtaken), using, now)
    _write([r for r in mine if r.claim.id not in overtaken], worker, now)
    _check_written(mine, worker)
    late = [r for r in results if isinstance(r, Succeeded)]
    late = [r for r in late if _is_open(r.claim, free.get(r.claim.id))]
    written = [*mine, *_succeed_late(late, using, now)]
    kept = set(map(id, (*written, *locked_by_others)))
    dropped = [r for r in results if id(r) not in kept]
    _note_dropped(dropped)
    return Persisted(written, dropped, locked_by_others)


def _note_dropped(results: Sequence[Result]) -> None:
    """Log the results of jobs that are not this worker's any more."""
    for result in results:
        raised = result.exception if isinstance(result, Failed | Decided) else None
        sentence = "another process was first, or an earlier try to write it got no reply"
        events.info("result_dropped", sentence, row=result.claim, exception=raised)


def _check_written(results: Sequence[Result], worker: Worker) -> None:
    """Raise `SkippedRowError` if the worker still owns one of the jobs."""
    rows = _rows(worker.using, [r.claim.id for r in results], is_locking=False)
    if any(_is_mine(r.claim, rows.get(r.claim.id), worker) for r in results):
        raise SkippedRowError


def _rows(using: str, ids: Iterable[int], *, is_locking: bool) -> dict[int, Job]:
    """Return the jobs by their ids; if locked, then without those that others have locked."""
    found: dict[int, Job] = {}
    for part in chunks(using, sorted(ids)):
        rows = part.order_by("pk").only("state", "attempt", "has_pending_answer", "worker_id")
        found |= {row.pk: row for row in (locked(rows, skip_locked=True) if is_locking else rows)}
    return found


def _may_be_written(result: Result, rows: Mapping[int, Job], worker: Worker) -> bool:
    claim, row = result.claim, rows.get(result.claim.id)
    is_late_success = isinstance(result, Succeeded) and _is_open(claim, row)
    return is_late_success or _is_mine(claim, row, worker)


def _is_mine(claim: Claim, row: Job | None, worker: Worker) -> bool:
    """Whether this process still owns the job by this claim."""
    if row is None or (row.state, row.attempt) != (_state_of(claim), claim.attempt):
        return False
    return row.worker_id is not None and row.worker_id in (worker.pk, claim.snapshot.worker_id)


def _is_open(claim: Claim, row: Job | None) -> bool:
    """Return whether the attempt was given up, and no new one has begun.

    An answer takes precedence over the result of the handler that requested it. If an answer was
    set aside, the result of its response handler is too.
    """
    if row is None or claim.phase is Phase.DECISION or row.attempt != claim.attempt:
        return False
    is_given_up = row.state in (State.ERROR, State.RETRY)
    return is_given_up and row.has_pending_answer == (claim.phase is Phase.RESPONSE)


def _state_of(claim: Claim) -> State:
    return State.ERROR if claim.phase is Phase.DECISION else State.RUNNING


def _was_answered_first(result: Result, row: Job) -> bool:
    """Whether the answer came while the handler was still running: the answer was first."""
    return result.claim.phase is Phase.REQUEST and row.has_pending_answer


def _write(results: Sequence[Result], worker: Worker, now: datetime) -> None:
    using = worker.using
    expected: dict[int, Expects] = {r.claim.id: [] for r in results if isinstance(r, Waits)}
    expected |= {r.claim.id: r.expects for r in results if isinstance(r, WaitsFor)}
    _wait(expected, using, now)
    _succeed([r for r in results if isinstance(r, Succeeded)], using, now)
    _snooze([r for r in results if isinstance(r, Snoozed)], using, now)
    _release([r for r in results if isinstance(r, Released)], using, now)
    _fail([r for r in results if isinstance(r, Failed)], worker, now)
    for decided in [r for r in results if isinstance(r, Decided)]:
        _apply_decision(decided, using, now)


def _wait(expected: Mapping[int, Expects], using: str, now: datetime) -> None:
    """Let jobs wait, without an owner, for the answers that they expect."""
    values = {pk: {"expects": expects} for pk, expects in expected.items()}
    update_each(using, values, update_time=now, **UNOWNED)


def _succeed(results: Sequence[Succeeded], using: str, now: datetime) -> None:
    values = {r.claim.id: {"result": r.value} for r in results}
    update_each(using, values, **final_values(Outcome.SUCCEEDED, now))
    note_succeeded(values, ((r.claim.job, r.value) for r in results), now, using)


def _succeed_late(results: Sequence[Succeeded], using: str, now: datetime) -> list[Succeeded]:
    """Write successes of attempts that were given up; return the written ones.

    A timeout or a lost worker is only a guess about the attempt, but an error answer is not.
    """
    if not results:  # as nearly always
        return []
    rows = rows_of(using, [r.claim.id for r in results]).select_related("queue", "job_type")
    jobs = {job.pk: job for job in rows}
    attempts = Attempt.objects.using(using).filter(job__in=jobs).exclude(kind__in=_GUESSED)
    known = set(attempts.values_list("job_id", "attempt"))
    late = [r for r in results if (r.claim.id, r.claim.attempt) not in known]
    for result in late:
        succeed(jobs[result.claim.id], result.value, now)
    return late


def _snooze(results: Sequence[Snoozed], using: str, now: datetime) -> None:
    times = {
        r.claim.id: next_time(
            r.claim.snapshot,
            now + timedelta(seconds=r.seconds),
            has_pending_answer=r.claim.phase is Phase.RESPONSE,
        )
        for r in results
    }
    put_back({r.claim.id: r.reason for r in results}, times, using, now)
    if again := [r.claim.id for r in results if r.run and r.claim.attempt > 1]:
        Attempt.objects.using(using).end_interruptions(again)


def _release(results: Sequence[Released], using: str, now: datetime) -> None:
    """Put jobs that did not start back to their place, where any worker may claim them.

    A request goes through error to retry, as the states demand, without an Attempt.
    """
    release([r.claim.id for r in results if r.claim.phase is not Phase.REQUEST], using, now)
    requests = [r for r in results if r.claim.phase is Phase.REQUEST]
    errors = {r.claim.id: _error_while_waiting(r) for r in requests}
    put_back(errors, {pk: {} for pk in errors}, using, now)


def _error_while_waiting(result: Released) -> str:
    """Return the error of a released job: what makes it a suspect, say, it still is."""
    last = result.claim.job.last_error
    return last if was_lost(last) else result.reason


def _fail(results: Sequence[Failed], worker: Worker, now: datetime) -> None:
    """Move the jobs to error, without an owner: retry handlers decide in the next batch."""
    using = worker.using
    errors = {r.claim.id: {"error": r.error} for r in results}
    update_each(using, errors, state=State.ERROR, update_time=now, **UNOWNED)
    record_attempts([attempt_of(result, worker, now) for result in results], using)
    raised = {r.claim.id: r.exception for r in results}
    announce(job_failed, ((r.claim.job, failed_values(r.error)) for r in results), using, raised)


def _apply_decision(result: Decided, using: str, now: datetime) -> None:
    """Move one job on from error, as its retry handler decided."""
    decision = result.decision
    if not isinstance(decision, GiveUp) and _retry(result, decision, using, now):
        return
    claim = result.claim
    values = final_values(failed_as(claim), now)
    rows_of(using, [claim.id]).update(**values)
    if result.why != NONE:
        last = Attempt.objects.using(using).filter(job=claim.id, attempt=claim.attempt)
        last.update(why_not_again=result.why)
    note_claims_given_up([claim], using)
    announce(job_finished, [(claim.job, values)], using)


def note_claims_given_up(claims: Sequence[Claim], using: str) -> None:
    """Tell of jobs that failed; what belongs to a claim with `extra` is written with its end."""
    note_ended([claim.id for claim in claims if claim.extra is not None], using)
    note_given_up([claim.id for claim in claims if claim.extra is None], using)


def _retry(result: Decided, decision: RetryIn | RetryAt, using: str, now: datetime) -> bool:
    job = result.claim.job
    before = {name: getattr(job, name) for name in result.changes}
    set_values(job, result.changes)
    answered = job.has_pending_answer and not decision.resend
    values = {
        **result.changes,
        **next_time(job, retry_time(decision, now), has_pending_answer=answered),
    }
    values |= {"state": State.RETRY, "update_time": now, **UNOWNED}
    values |= {"has_pending_answer": False} if decision.resend else {}
    try:
        with transaction.atomic(using=using, savepoint="job_key" in result.changes):
            rows_of(using, [result.claim.id]).update(**values)
    except IntegrityError:
        if "job_key" not in result.changes:
            raise
        key = result.changes["job_key"]
        result.why = f"a live job has the key {key!r}, which its retry handler set"
        result.decision = GiveUp()
        set_values(job, before)
        return False
    if decision.resend:
        discard_answers([job.pk], using)
    set_values(job, values)
    return True
