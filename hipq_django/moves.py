"""Every move of a job is written here and nowhere else.

Each is a compare-and-set: the row must still be in the state, attempt and hands in which the
mover left it. No such row means that somebody else was first, and the mover drops its result.
Rows are locked in the order of their ids.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction
from django.db.models import Case, Model, Value, When

from hipq_django.database import locked, max_rows_per_statement
from hipq_django.exceptions import JobTimeout
from hipq_django.hotpath import hot_path
from hipq_django.hotpath.rows import write_claim
from hipq_django.models import Answer, Attempt, Job
from hipq_django.payloads import NONE
from hipq_django.results import Claim, Decided, Failed, Result, Snoozed, Succeeded, Waits, WaitsFor
from hipq_django.retries import GiveUp, RetryAt, RetryIn, class_names, retry_time
from hipq_django.signals import job_failed, job_finished, send_after_commit
from hipq_django.states import Outcome, State, Work, path
from hipq_django.windows import next_opening, parse_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from hipq_django.hotpath.base import Settled
    from hipq_django.inbox import Message
    from hipq_django.models import Queue, Worker
    from hipq_django.parts import Expects
    from hipq_django.ranking import Ordering
    from hipq_django.results import Kept

logger = logging.getLogger("hipq_django")

CASES_PER_STATEMENT = 100

FREE: dict[str, Any] = {"worker": None, "work": Work.NONE}
"""The values of a job that is in nobody's hands."""


# Claiming


def claim(jobs: Sequence[Job], worker: Worker, now: datetime, *, prefetched: set[int]) -> None:
    """Move locked waiting jobs to running in the hands of `worker`; count the attempt.

    The deadline counts from here. `prefetched` are the ids that may wait in the worker for a
    free thread. The given copies are brought up to date.
    """
    for job in jobs:
        job.attempt += 1
    _note_claim(jobs, worker, now, prefetched)
    hot_path(worker.using).claim(jobs, worker, now)


def claim_due(
    queue: Queue, worker: Worker, now: datetime, *, room: int, limit: int, types: Sequence[int]
) -> list[Job]:
    """Do the same at once with the first due jobs of an unlimited queue that need no look.

    See `HotPath.claim_due`. Those behind the first `room` may wait for a free thread.
    """
    path = hot_path(worker.using)
    jobs = path.claim_due(queue, worker, now, room=room, limit=limit, types=types)
    _note_claim(jobs, worker, now, {job.id for job in jobs[room:]})
    return jobs


def _note_claim(jobs: Sequence[Job], worker: Worker, now: datetime, prefetched: set[int]) -> None:
    values = {"state": State.RUNNING, "error": NONE, "worker_id": worker.pk, "update_time": now}
    values |= {"progress": 0.0, "progress_message": NONE, "extended_seconds": 0.0}
    write_claim(jobs, {**values, "work": Work.REQUEST}, worker)
    deadlines = {timeout: now + timedelta(seconds=timeout) for timeout in {j.timeout for j in jobs}}
    for job in jobs:
        job.deadline = deadlines[job.timeout]
        job.prefetched = job.id in prefetched


def take(jobs: Sequence[Job], worker: Worker, now: datetime) -> None:
    """Put locked jobs whose response or error waits to be worked off into the worker's hands.

    For a response handler the deadline starts anew: the other system has done its part.
    """
    for job in jobs:
        job.worker = worker
        job.work = Work.RESPONSE if job.state == State.RUNNING else Work.DECISION
    for (work, timeout), group in _grouped(jobs, lambda j: (j.work, j.timeout)).items():
        values: dict[str, Any] = {"worker": worker, "work": work, "prefetched": False}
        values["update_time"] = now
        if work == Work.RESPONSE:
            values |= {"deadline": now + timedelta(seconds=timeout), "extended_seconds": 0}
        _rows(worker.using, [j.pk for j in group]).update(**values)


def expect_response_handler(job: Job) -> None:
    """Write that a job claimed just now goes to its response handler: its answer came early."""
    _rows(job.using, [job.pk]).update(answered=True, work=Work.RESPONSE)


def reschedule(job: Job, moment: datetime, now: datetime) -> None:
    """Give a waiting job another time; this is neither an error nor an attempt."""
    job.scheduled_run_time = moment
    job.rank = job.queue.ordering.rank(moment, job.priority)
    _rows(job.using, [job.pk]).waiting().update(
        scheduled_run_time=moment, rank=job.rank, update_time=now
    )


def edit(job: Job, values: Mapping[str, Any], now: datetime) -> None:
    """Give a locked waiting job other values; this is neither an error nor an attempt.

    A new time becomes the first one inside its windows; the rank follows. The given copy is
    brought up to date.
    """
    _set(job, values)
    moment = job.scheduled_run_time
    if "scheduled_run_time" in values:
        moment = first_opening(job, moment)
    place = {"scheduled_run_time": moment, "rank": job.queue.ordering.rank(moment, job.priority)}
    changes = {**values, **place, "update_time": now}
    _rows(job.using, [job.pk]).waiting().update(**changes)
    _set(job, changes)


def rank(jobs: Sequence[Job], ordering: Ordering, using: str) -> int:
    """Write the ranks of locked waiting jobs anew where they differ; return how many did."""
    ranks = {job.pk: {"rank": ordering.rank(job.scheduled_run_time, job.priority)} for job in jobs}
    changed = {job.pk: ranks[job.pk] for job in jobs if job.rank != ranks[job.pk]["rank"]}
    _update_each(using, changed)
    return len(changed)


# What is said of a running job


def set_key(job: Job, job_key: str, now: datetime) -> None:
    """Give a locked running job another key; raise `IntegrityError` where that one is taken.

    It is the caller's savepoint that is rolled back then.
    """
    _running_row(job).update(job_key=job_key, update_time=now)
    job.job_key = job_key


def set_progress(job: Job, percent: float, message: str) -> None:
    """Write how far a locked running job is.

    The time of the last move stays: it stands in an index, without which PostgreSQL writes the
    new version of the row on the same page, and progress may come often.
    """
    _running_row(job).update(progress=percent, progress_message=message)


def set_deadline(job: Job, deadline: datetime, now: datetime) -> None:
    """Let the attempt of a locked running job time out at another moment."""
    extended = job.extended_seconds + (deadline - job.deadline).total_seconds()
    values = {"deadline": deadline, "extended_seconds": extended, "update_time": now}
    _running_row(job).update(**values)
    _set(job, values)


def _running_row(job: Job) -> Any:
    return _rows(job.using, [job.pk]).running().filter(attempt=job.attempt)


# Persisting what a worker did


def persist(results: Sequence[Result], worker: Worker, now: datetime) -> list[Result]:
    """Write the results that are still the worker's to write; return those.

    A few statements for the whole batch: one for all that succeeded and one for all that wait;
    what those two leave is looked at row by row in one transaction.
    """
    written = _finish(results, worker, now)
    left = [r for r in results if r.claim.id not in written]
    if left:
        with transaction.atomic(using=worker.using):
            written |= _persist_with_care(left, worker, now)
    return [r for r in results if r.claim.id in written]


def _finish(results: Sequence[Result], worker: Worker, now: datetime) -> set[int]:
    path = hot_path(worker.using)
    succeeded = [r for r in results if isinstance(r, Succeeded)]
    final = path.finish(
        [(r.claim.id, r.claim.attempt, r.value, r.claim.work is Work.REQUEST) for r in succeeded],
        worker,
        now,
    )
    _announce_final([r for r in succeeded if r.claim.id in final], now)
    waiting = [(r.claim.id, r.claim.attempt) for r in results if isinstance(r, Waits)]
    return final | path.let_go(waiting, worker, now)


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
        rows = _rows(using, wanted[start : start + size]).order_by("pk")
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


def let_go(ids: Sequence[int], using: str, now: datetime) -> None:
    """Take jobs out of a worker's hands, their state unchanged."""
    for rows in _chunks(using, ids):
        rows.update(**FREE, update_time=now)


def _wait(expected: Mapping[int, Expects], using: str, now: datetime) -> None:
    """Let jobs wait in nobody's hands for what they expect."""
    values = {pk: {"expects": expects} for pk, expects in expected.items()}
    _update_each(using, values, update_time=now, **FREE)


def _succeed(results: Sequence[Succeeded], using: str, now: datetime) -> None:
    values = {r.claim.id: {"result": r.value} for r in results}
    _update_each(using, values, **_success(now))
    _announce_final(results, now)


def _success(now: datetime) -> dict[str, Any]:
    return {
        "state": State.FINAL,
        "outcome": Outcome.SUCCEEDED,
        "answered": False,
        "update_time": now,
        **FREE,
    }


def _announce_final(results: Sequence[Succeeded], now: datetime) -> None:
    if not results or not job_finished.has_listeners():
        return
    for result in results:
        _set(result.claim.job, {**_success(now), "result": result.value})
    jobs = [r.claim.job for r in results]
    send_after_commit(job_finished, jobs, jobs[0].using)


def _put_back(results: Sequence[Snoozed], using: str, now: datetime) -> None:
    """Through error to retry, as the states demand, without an Attempt."""
    errors = {r.claim.id: {"error": r.reason} for r in results}
    _update_each(using, errors, state=State.ERROR, update_time=now, **FREE)
    retries = {
        r.claim.id: _next_time(
            r.claim.kept,
            now + timedelta(seconds=r.seconds),
            answered=r.claim.work is Work.RESPONSE,
        )
        for r in results
    }
    _update_each(using, retries, state=State.RETRY)


def _fail(results: Sequence[Failed], worker: Worker, now: datetime) -> None:
    """To error, in nobody's hands: the retry handler decides in the next batch."""
    using = worker.using
    errors = {r.claim.id: {"error": r.error} for r in results}
    _update_each(using, errors, state=State.ERROR, update_time=now, **FREE)
    record(
        [
            Attempt(
                job_id=r.claim.id,
                attempt=r.claim.attempt,
                error=r.error,
                traceback=r.traceback,
                exception_classes=r.classes,
                worker=worker.name,
                **_span(r.claim.kept, now),
            )
            for r in results
        ],
        using,
    )
    for result in results:
        _set(result.claim.job, {"state": State.ERROR, "error": result.error, **FREE})
    send_after_commit(job_failed, [r.claim.job for r in results], using)


def record(attempts: Sequence[Attempt], using: str) -> None:
    """Write down failed attempts; the first that was written for an attempt stays."""
    Attempt.objects.using(using).bulk_create(attempts, ignore_conflicts=True)


def _span(job: Job | Kept, now: datetime) -> dict[str, datetime]:
    return {"start_time": job.start_time, "end_time": now}


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
    _rows(using, [claim.id]).update(**values)
    _set(claim.job, values)
    send_after_commit(job_finished, [claim.job], using)


def _retry(result: Decided, decision: RetryIn | RetryAt, using: str, now: datetime) -> bool:
    job = result.claim.job
    _set(job, result.changes)
    answered = job.answered and not decision.resend
    values = {**result.changes, **_next_time(job, retry_time(decision, now), answered=answered)}
    values |= {"state": State.RETRY, "update_time": now, **FREE}
    if decision.resend:
        values["answered"] = False
    try:
        with transaction.atomic(using=using, savepoint="job_key" in result.changes):
            _rows(using, [result.claim.id]).update(**values)
    except IntegrityError:
        if "job_key" not in result.changes:
            raise
        logger.exception("job=%s key=%r of its retry handler is taken", job.pk, job.job_key)
        return False
    if decision.resend:
        discard_answers([job.pk], using)
    _set(job, values)
    return True


def _next_time(job: Job | Kept, moment: datetime, *, answered: bool) -> dict[str, Any]:
    """Windows guard the request: a job whose answer is there already does not wait for one."""
    if not answered:
        moment = first_opening(job, moment)
    return {"scheduled_run_time": moment, "rank": job.queue.ordering.rank(moment, job.priority)}


def first_opening(job: Job | Kept, moment: datetime) -> datetime:
    """Return the first moment from `moment` on at which the job's time windows let it run."""
    if not job.time_windows:
        return moment
    return next_opening(parse_windows(job.time_windows), moment, job.job_type.zone)


def discard_answers(ids: Sequence[int], using: str) -> None:
    """Set aside the responses, and early parts, of jobs that send their request again."""
    kept = (Answer.Status.ACCEPTED, Answer.Status.EARLY)
    Answer.objects.using(using).filter(
        job__in=ids, status__in=kept, kind=Answer.Kind.RESPONSE
    ).update(status=Answer.Status.DISCARDED)


# Moves from outside a worker


def walk(job: Job, new: State, values: Mapping[str, Any], now: datetime) -> None:
    """Move one locked job to `new` on the shortest way of allowed moves, in this transaction.

    `values` are written with the last step; `error` also where the way leads through error. The
    given copy is brought up to date.
    """
    steps = path(State(job.state), new)
    for step in steps:
        passing: dict[str, Any] = {"state": step, "update_time": now, **FREE}
        if step in (State.RUNNING, State.ERROR):
            passing["error"] = NONE if step == State.RUNNING else values["error"]
        if step == steps[-1]:
            passing |= values
        changed = _rows(job.using, [job.pk]).filter(state=job.state).update(**passing)
        if not changed:
            raise IntegrityError(f"job {job.pk} left state {job.state} although it was locked")
        _set(job, passing)


def settle(
    messages: Sequence[Message], now: datetime, using: str, *, handled: bool, job_id: int | None
) -> list[Settled]:
    """Settle waiting jobs by responses, and store these; see `HotPath.settle`."""
    settled = hot_path(using).settle(messages, now, handled=handled, job_id=job_id)
    if settled and not handled and job_finished.has_listeners():
        for jobs in _chunks(using, [done.job_id for done in settled]):
            send_after_commit(job_finished, jobs, using)
    return settled


def finish_answered(responses: Sequence[tuple[Job, Any]], now: datetime, using: str) -> None:
    """Make locked running jobs final by the responses that nobody handles."""
    if not responses:
        return
    results = {job.pk: {"result": response} for job, response in responses}
    _update_each(using, results, **_success(now))
    if job_finished.has_listeners():
        for job, response in responses:
            _set(job, {**_success(now), "result": response})
        send_after_commit(job_finished, [job for job, _ in responses], using)


def mark_answered(jobs: Sequence[Job], now: datetime, using: str) -> None:
    """Note that the responses of locked running jobs wait for their response handlers."""
    ids = [job.pk for job in jobs]
    for rows in _chunks(using, ids):
        rows.update(answered=True, update_time=now)
    for job in jobs:
        job.answered = True


def fail(
    jobs: Sequence[Job], kind: Attempt.Kind, errors: Mapping[int, Any], now: datetime, using: str
) -> None:
    """Move locked running jobs to error; their retry handlers decide in the next batch.

    What another system answered may quote sensitive fields: it is masked, the inbox has it whole.
    """
    if kind == Attempt.Kind.ANSWERED:
        errors = {job.pk: job.masked(errors[job.pk]) for job in jobs}
    rows = {job.pk: {"error": errors[job.pk]} for job in jobs}
    _update_each(using, rows, state=State.ERROR, update_time=now, **FREE)
    record([_attempt(job, kind, errors[job.pk], now) for job in jobs], using)
    for job in jobs:
        _set(job, {"state": State.ERROR, "error": errors[job.pk], **FREE})
    send_after_commit(job_failed, jobs, using)


def _attempt(job: Job, kind: Attempt.Kind, error: Any, now: datetime) -> Attempt:
    return Attempt(
        job_id=job.pk,
        attempt=job.attempt,
        kind=kind,
        error=error,
        exception_classes=class_names(Attempt.CLASSES[kind]),
        worker=job.worker.name if job.worker else NONE,
        **_span(job, now),
    )


def hand_back(jobs: Sequence[Job], reason: str, now: datetime, using: str) -> None:
    """Put locked jobs that did not start, or were let go, back to where they are claimed.

    Through error to retry without an Attempt; the attempt keeps its number, it only ever grows.
    """
    running = [j for j in jobs if j.state == State.RUNNING]
    errors = {j.pk: {"error": reason} for j in running}
    _update_each(using, errors, state=State.ERROR, update_time=now, **FREE)
    retries = {j.pk: _next_time(j, now, answered=j.answered) for j in running}
    _update_each(using, retries, state=State.RETRY)
    let_go([j.pk for j in jobs if j.state == State.ERROR], using, now)


# How rows are written


def _rows(using: str, ids: Sequence[int]) -> Any:
    return Job.objects.using(using).filter(pk__in=ids)


def _chunks(using: str, ids: Sequence[int]) -> Iterator[Any]:
    size = max_rows_per_statement(using)
    for start in range(0, len(ids), size):
        yield _rows(using, ids[start : start + size])


def _update_each(using: str, changes: Mapping[int, Mapping[str, Any]], **same: Any) -> None:
    """Update many rows in few statements: `changes` differ by row, `same` do not."""
    ids = list(changes)
    for start in range(0, len(ids), CASES_PER_STATEMENT):
        part = ids[start : start + CASES_PER_STATEMENT]
        cases = {
            name: _case(name, {i: changes[i][name] for i in part}) for name in changes[part[0]]
        }
        _rows(using, part).update(**cases, **same)


def _case(name: str, values: Mapping[int, Any]) -> Case:
    output: Any = Job._meta.get_field(name)
    whens = [When(pk=pk, then=Value(value, output_field=output)) for pk, value in values.items()]
    return Case(*whens, output_field=output)


def _grouped(jobs: Iterable[Job], key: Any) -> dict[Any, list[Job]]:
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups


def _set(row: Model, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(row, name, value)
