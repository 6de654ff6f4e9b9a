"""Which worker owns a job: claim, assign, release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.db import Error
from django.db.models import Case, F, Q, When

from hipq_django.database.errors import DeclaredLostError, SkippedRowError
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.states import Phase, State
from hipq_django.engines import engine_for
from hipq_django.engines.rows import write_claim
from hipq_django.engines.values import CLAIMED, ClaimRequest
from hipq_django.models import Job, Queue, Worker
from hipq_django.transitions.edits import first_opening, next_time
from hipq_django.transitions.updates import UNOWNED, rows_of, update_all, update_each
from hipq_django.transitions.values import RESERVATION_SECONDS, Claim


def claim(jobs: Sequence[Job], worker: Worker, now: datetime, *, room: int) -> None:
    """Move locked waiting jobs to running, owned by `worker`; count the attempt.

    The deadline counts from here. As many as there is `room` for start at once; those behind may
    wait in the worker for a free thread. The given copies are brought up to date. Raise
    `DeclaredLostError` if the worker was declared lost, `SkippedRowError` if the database lets a
    job be, and then change nothing.
    """
    for job in jobs:
        job.attempt += 1
    mark_claimed(jobs, worker, now, room)
    try:
        claimed = engine_for(worker.using).claim(jobs, worker, now)
        if claimed < len(jobs):
            raise _why_not_all(worker)
    except Error:
        for job in jobs:
            job.attempt -= 1
        raise


def _why_not_all(worker: Worker) -> DeclaredLostError | SkippedRowError:
    """Return why a worker could not take all of some locked jobs."""
    return SkippedRowError() if worker.live_row().exists() else DeclaredLostError()


def claim_due(
    queues: Sequence[Queue], worker: Worker, now: datetime, wanted: ClaimRequest
) -> list[Job]:
    """Claim the first due jobs of queues without a limit, see `Engine.claim_due`."""
    jobs = engine_for(worker.using).claim_due(queues, worker, now, wanted)
    mark_claimed(jobs, worker, now, wanted.room)
    return jobs


def mark_claimed(jobs: Sequence[Job], worker: Worker, now: datetime, room: int) -> None:
    """Bring the copies of claimed jobs up to date."""
    own = {"worker_id": worker.id, "last_worker_id": worker.id, "update_time": now}
    values = {**CLAIMED, **own}
    deadlines = {timeout: now + timedelta(seconds=timeout) for timeout in {j.timeout for j in jobs}}
    if len(deadlines) == 1:  # as nearly always
        [values["deadline"]] = deadlines.values()
    write_claim(jobs[:room], {**values, "prefetched": False}, worker)
    if len(jobs) > room:
        write_claim(jobs[room:], {**values, "prefetched": True}, worker)
    for job in jobs if len(deadlines) > 1 else ():
        job.deadline = deadlines[job.timeout]


def assign(jobs: Sequence[Job], worker: Worker, now: datetime, *, room: int) -> None:
    """Make the worker the owner of locked jobs with a pending response or error.

    For a response handler the deadline starts again: the other system has done its part. `room`,
    and what is raised, are as in `claim`.
    """
    taken = 0
    ahead = [job.id for job in jobs[room:]]
    is_ahead = Case(When(pk__in=ahead, then=True), default=False) if ahead else False
    groups = defaultdict[tuple[Phase, float], list[int]](list)
    for place, job in enumerate(jobs):
        job.worker = worker
        job.prefetched = place >= room
        job.phase = Phase.RESPONSE if job.state == State.RUNNING else Phase.DECISION
        groups[job.phase, job.timeout].append(job.id)
    for (phase, timeout), ids in groups.items():
        values: dict[str, Any] = {"worker": worker, "phase": phase, "prefetched": is_ahead}
        values |= {"last_worker_id": worker.id, "update_time": now}
        if phase == Phase.RESPONSE:
            values |= {"deadline": now + timedelta(seconds=timeout), "extended_seconds": 0}
        rows = rows_of(worker.using, ids).filter(worker.is_live())
        taken += rows.update(**values)
    if taken < len(jobs):
        raise _why_not_all(worker)


def expect_response_handler(job: Job) -> None:
    """Write that a newly claimed job goes to its response handler: its answer came early."""
    update_all(job.using, [job.id], has_pending_answer=True, phase=Phase.RESPONSE)


def mark_started(claims: Sequence[Claim], worker: Worker) -> int:
    """Write that jobs which were claimed ahead have started; locked rows are left for later.

    Return how many rows say so now. The jobs started within the time that a reservation lasts, and
    their deadlines count from there; a decision has none.
    """
    started = {(claim.id, claim.phase) for claim in claims}
    rows = rows_of(worker.using, [claim.id for claim in claims]).filter(worker=worker)
    rows = rows.filter(attempt__in={claim.attempt for claim in claims}, prefetched=True)
    waited = timedelta(seconds=RESERVATION_SECONDS)
    deadline = Case(When(state=State.RUNNING, then=F("deadline") + waited), default=F("deadline"))
    with worker_transaction(worker.using):
        found = locked(rows, skip_locked=True).only("pk", "phase")
        free = [row.id for row in found if (row.id, row.phase) in started]
        update_all(worker.using, free, prefetched=False, deadline=deadline)
        left = set(rows.values_list("pk", flat=True)) if len(free) < len(claims) else set()
    for claim in claims:
        claim.is_known_as_started = claim.id not in left
    return len(free)


def confirm_start(claim: Claim, worker: Worker, now: datetime) -> bool:
    """Write that a claimed job starts now, if its claim still holds; return whether it does.

    It does not if the job has another owner or is final, was answered, or may not start any more;
    nor if its row is locked, because that transaction may be about to change it.
    """
    rows = rows_of(worker.using, [claim.id]).filter(_may_begin(claim.phase))
    rows = rows.filter(worker=worker, attempt=claim.attempt)
    values: dict[str, Any] = {"prefetched": False, "update_time": now}
    if claim.phase is not Phase.DECISION:
        values["deadline"] = now + timedelta(seconds=claim.snapshot.timeout)
    with worker_transaction(worker.using):
        row = locked(rows, skip_locked=True).only("pk").first()
        if row is None or not _is_in_window(claim, now):
            return False
        update_all(worker.using, [claim.id], **values)
    return True


def holding(claims: Sequence[Claim], now: datetime, using: str) -> list[Claim]:
    """Return the claims that still hold, as `confirm_start` would find; it writes nothing."""
    valid = set[tuple[int, int, int]]()
    for phase in {claim.phase for claim in claims}:
        rows = rows_of(using, [claim.id for claim in claims if claim.phase is phase])
        rows = rows.filter(_may_begin(phase), worker__isnull=False)
        valid |= set(rows.values_list("pk", "attempt", "worker_id"))
    return [
        claim
        for claim in claims
        if (claim.id, claim.attempt, claim.snapshot.worker_id) in valid
        and _is_in_window(claim, now)
    ]


def given_up(claims: Sequence[Claim], using: str) -> list[Claim]:
    """Return the claims whose attempts are not their worker's any more, one query for all."""
    if not claims:
        return []
    rows = rows_of(using, [claim.id for claim in claims]).filter(worker__isnull=False)
    owned = set(rows.values_list("pk", "attempt", "worker_id"))
    return [c for c in claims if (c.id, c.attempt, c.snapshot.worker_id) not in owned]


def _may_begin(phase: Phase) -> Q:
    """The condition of rows whose owner may begin a phase.

    A phase is possible in one state only. With a condition on that the planner may take the index
    of the state, which has the dead entries of all that ran while some transaction was open.
    """
    begins = Q(phase=phase)
    is_free = Q(has_pending_answer=False, queue__paused=False)
    return begins & is_free if phase is Phase.REQUEST else begins


def _is_in_window(claim: Claim, now: datetime) -> bool:
    """Windows apply to requests alone."""
    return claim.phase is not Phase.REQUEST or first_opening(claim.snapshot, now) <= now


def release(ids: Sequence[int], using: str, now: datetime) -> None:
    """End the ownership of jobs, their state unchanged."""
    update_all(using, ids, **UNOWNED, update_time=now)


def release_for_retry(
    jobs: Sequence[Job],
    reason: str,
    now: datetime,
    using: str,
    *,
    errors: Mapping[int, Any] = MappingProxyType({}),
) -> None:
    """Put locked jobs that did not start, or were released, back to be claimed again.

    The attempt keeps its number, which only grows. `errors` are those that jobs had before.
    """
    running = [j for j in jobs if j.state == State.RUNNING]
    times = {j.id: next_time(j, now, has_pending_answer=j.has_pending_answer) for j in running}
    put_back({pk: errors.get(pk, reason) for pk in times}, times, using, now)
    release([j.id for j in jobs if j.state == State.ERROR], using, now)


def put_back(
    reasons: Mapping[int, str], times: Mapping[int, Mapping[str, Any]], using: str, now: datetime
) -> None:
    """Move running jobs through error to retry, as the states demand, without an Attempt."""
    errors = {pk: {"error": reason} for pk, reason in reasons.items()}
    update_each(using, errors, state=State.ERROR, update_time=now, **UNOWNED)
    update_each(using, times, state=State.RETRY)
