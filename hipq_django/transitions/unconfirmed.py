"""Results that an earlier try has written, although the reply to its commit got lost.

What is said and sent after a commit got lost with it: it is done by the try that finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hipq_django.domain.retries import GiveUp
from hipq_django.domain.states import Outcome, State
from hipq_django.extensions import note_ended
from hipq_django.models import Job, Worker
from hipq_django.signals import job_failed, job_finished
from hipq_django.transitions.decisions import decide_at_once, failed_as
from hipq_django.transitions.outcomes import (
    announce,
    failed_values,
    final_values,
    note_succeeded,
)
from hipq_django.transitions.updates import chunks
from hipq_django.transitions.values import Decided, Failed, Persisted, Result, Succeeded


def written_before(results: Sequence[Result], worker: Worker, now: datetime) -> Persisted:
    """Return those of the results that the rows of their jobs have, and tell of them."""
    using, rows = worker.using, dict[int, Job]()
    for part in chunks(using, sorted({result.claim.id for result in results})):
        rows |= {row.pk: row for row in part}
    failed = [result for result in results if isinstance(result, Failed)]
    decided = {result.claim.id: result for result in decide_at_once(failed, using)}
    written = [
        result
        for result in results
        if (row := rows.get(result.claim.id))
        and _is_its_workers(row, result, worker)
        and _has(row, result, decided.get(result.claim.id))
    ]
    at_once = [decided[r.claim.id] for r in written if r.claim.id in decided]
    _tell(written, at_once, now, using)
    return Persisted(written, [], [], at_once)


def _is_its_workers(row: Job, result: Result, worker: Worker) -> bool:
    """Return whether the attempt is still the last one, and no other worker has moved the job."""
    claim = result.claim
    workers = (worker.pk, claim.snapshot.worker_id)
    return row.attempt == claim.attempt and row.last_worker_id in workers


def _has(row: Job, result: Result, at_once: Decided | None) -> bool:
    """Return whether a row is as it was written; a failure together with what follows it."""
    if isinstance(result, Succeeded):
        return row.outcome == Outcome.SUCCEEDED and bool(row.result == result.value)
    if isinstance(result, Failed) and row.error != result.error:
        return False
    decided = result if isinstance(result, Decided) else at_once
    if decided is None:
        return isinstance(result, Failed)
    if isinstance(decided.decision, GiveUp):
        return row.outcome == failed_as(result.claim)
    return row.state == State.RETRY


def _tell(written: Sequence[Result], at_once: Sequence[Decided], now: datetime, using: str) -> None:
    succeeded = {r.claim.id: (r.claim.job, r.value) for r in written if isinstance(r, Succeeded)}
    note_succeeded(succeeded, succeeded.values(), now, using)
    failed = [result for result in written if isinstance(result, Failed)]
    raised = {result.claim.id: result.exception for result in failed}
    announce(job_failed, ((r.claim.job, failed_values(r.error)) for r in failed), using, raised)
    decided = [*at_once, *(result for result in written if isinstance(result, Decided))]
    given_up = [result.claim for result in decided if isinstance(result.decision, GiveUp)]
    note_ended([claim.id for claim in given_up], using)
    ends = ((claim.job, final_values(failed_as(claim), now)) for claim in given_up)
    announce(job_finished, ends, using)
