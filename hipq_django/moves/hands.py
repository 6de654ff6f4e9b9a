"""Into a worker's hands and out of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import F

from hipq_django.database import locked, worker_transaction
from hipq_django.hotpath import hot_path
from hipq_django.hotpath.base import GivenUpError
from hipq_django.hotpath.rows import write_claim
from hipq_django.moves.rows import FREE, chunks, rows_of, update_each
from hipq_django.moves.waiting import first_opening, next_time
from hipq_django.payloads import NONE
from hipq_django.results import RESERVATION_SECONDS
from hipq_django.states import State, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from hipq_django.hotpath.base import Wanted
    from hipq_django.models import Job, Queue, Worker
    from hipq_django.results import Claim


def claim(jobs: Sequence[Job], worker: Worker, now: datetime, *, room: int) -> None:
    """Move locked waiting jobs to running in the hands of `worker`; count the attempt.

    The deadline counts from here. So many as there is `room` for start at once, those behind may
    wait in the worker for a free thread. The given copies are brought up to date. Raise
    `GivenUpError` where the worker was given up.
    """
    for job in jobs:
        job.attempt += 1
    note_claim(jobs, worker, now, room)
    if hot_path(worker.using).claim(jobs, worker, now) < len(jobs):
        raise GivenUpError


def claim_due(queues: Sequence[Queue], worker: Worker, now: datetime, wanted: Wanted) -> list[Job]:
    """Do the same at once with the first due jobs of queues without a limit that need no look.

    See `HotPath.claim_due`.
    """
    jobs = hot_path(worker.using).claim_due(queues, worker, now, wanted)
    note_claim(jobs, worker, now, wanted.room)
    return jobs


def note_claim(jobs: Sequence[Job], worker: Worker, now: datetime, room: int) -> None:
    """Bring the copies of claimed jobs up to date."""
    values = {"state": State.RUNNING, "error": NONE, "worker_id": worker.pk, "update_time": now}
    values |= {"progress": 0.0, "progress_message": NONE, "extended_seconds": 0.0}
    values["work"] = Work.REQUEST
    write_claim(jobs[:room], {**values, "prefetched": False}, worker)
    write_claim(jobs[room:], {**values, "prefetched": True}, worker)
    deadlines = {timeout: now + timedelta(seconds=timeout) for timeout in {j.timeout for j in jobs}}
    for job in jobs:
        job.deadline = deadlines[job.timeout]


def take(jobs: Sequence[Job], worker: Worker, now: datetime) -> None:
    """Put locked jobs whose response or error waits to be worked off into the worker's hands.

    For a response handler the deadline starts anew: the other system has done its part. Raise
    `GivenUpError` where the worker was given up.
    """
    taken = 0
    for job in jobs:
        job.worker = worker
        job.work = Work.RESPONSE if job.state == State.RUNNING else Work.DECISION
    for (work, timeout), group in _grouped(jobs, lambda j: (j.work, j.timeout)).items():
        values: dict[str, Any] = {"worker": worker, "work": work, "prefetched": False}
        values["update_time"] = now
        if work == Work.RESPONSE:
            values |= {"deadline": now + timedelta(seconds=timeout), "extended_seconds": 0}
        rows = rows_of(worker.using, [j.pk for j in group]).filter(worker.is_live())
        taken += rows.update(**values)
    if taken < len(jobs):
        raise GivenUpError


def expect_response_handler(job: Job) -> None:
    """Write that a job claimed just now goes to its response handler: its answer came early."""
    rows_of(job.using, [job.pk]).update(answered=True, work=Work.RESPONSE)


def mark_started(claims: Sequence[Claim], worker: Worker) -> None:
    """Write that jobs which were claimed ahead have started; what is locked is left as it is.

    They started within the time that a reservation lasts, and their deadlines count from there.
    """
    rows = rows_of(worker.using, [claim.id for claim in claims]).running()
    rows = rows.filter(attempt__in={claim.attempt for claim in claims}, worker=worker)
    with worker_transaction(worker.using):
        ids = [row.pk for row in locked(rows.filter(prefetched=True), skip_locked=True).only("pk")]
        waited = timedelta(seconds=RESERVATION_SECONDS)
        rows_of(worker.using, ids).update(prefetched=False, deadline=F("deadline") + waited)


def confirm_start(claim: Claim, worker: Worker, now: datetime) -> bool:
    """Write that a claimed job starts now, where that is still right; return whether it is.

    It is not where the job is somebody else's or final, was answered, or should not start any
    more; nor where somebody has its row locked, and may be about to change just that.
    """
    state = State.ERROR if claim.work is Work.DECISION else State.RUNNING
    rows = rows_of(worker.using, [claim.id]).filter(state=state, work=claim.work)
    rows = rows.filter(worker=worker, attempt=claim.attempt)
    if claim.work is Work.REQUEST:
        rows = rows.filter(answered=False, queue__paused=False)
    values: dict[str, Any] = {"prefetched": False, "update_time": now}
    if claim.work is not Work.DECISION:
        values["deadline"] = now + timedelta(seconds=claim.kept.timeout)
    with worker_transaction(worker.using):
        row = locked(rows, skip_locked=True).only("pk").first()
        guarded = claim.work is Work.REQUEST
        if row is None or (guarded and first_opening(claim.kept, now) > now):
            return False
        rows_of(worker.using, [claim.id]).update(**values)
    return True


def let_go(ids: Sequence[int], using: str, now: datetime) -> None:
    """Take jobs out of a worker's hands, their state unchanged."""
    for rows in chunks(using, ids):
        rows.update(**FREE, update_time=now)


def hand_back(jobs: Sequence[Job], reason: str, now: datetime, using: str) -> None:
    """Put locked jobs that did not start, or were let go, back to where they are claimed.

    Through error to retry without an Attempt; the attempt keeps its number, it only ever grows.
    """
    running = [j for j in jobs if j.state == State.RUNNING]
    errors = {j.pk: {"error": reason} for j in running}
    update_each(using, errors, state=State.ERROR, update_time=now, **FREE)
    retries = {j.pk: next_time(j, now, answered=j.answered) for j in running}
    update_each(using, retries, state=State.RETRY)
    let_go([j.pk for j in jobs if j.state == State.ERROR], using, now)


def _grouped(jobs: Iterable[Job], key: Any) -> dict[Any, list[Job]]:
    groups: dict[Any, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups
