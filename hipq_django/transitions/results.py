"""What a worker did, written for a whole batch in few statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.domain.retries import GiveUp
from hipq_django.domain.states import Outcome, Phase, State
from hipq_django.engines import engine_for
from hipq_django.engines.values import Failing
from hipq_django.signals import job_failed, job_finished, send_after_commit
from hipq_django.transitions.decisions import conclusion, decide_at_once, is_plain
from hipq_django.transitions.outcomes import succeeded_values
from hipq_django.transitions.ownership import mark_claimed
from hipq_django.transitions.row_by_row import persist_with_care
from hipq_django.transitions.updates import UNOWNED, set_values
from hipq_django.transitions.values import (
    Decided,
    Failed,
    Persisted,
    Result,
    Succeeded,
    Waits,
    log_results,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from hipq_django.engines.values import ClaimRequest, Concluded, Finished
    from hipq_django.models import Job, Queue, Worker


def persist(results: Sequence[Result], worker: Worker, now: datetime) -> Persisted:
    """Write the results that are still the worker's to write.

    A few statements for the whole batch: one for all that succeeded, one for all that wait, one
    for all that failed and what follows. None waits for a row that somebody else has locked. What
    they leave is looked at row by row in one transaction.
    """
    newest = {r.claim.id: r for r in results}
    if len(newest) < len(results):
        newest = {r.claim.id: r for r in sorted(results, key=_attempt)}
    batch = _Batch(newest.values())
    ids = _finish(batch, worker, now) | _fail(batch, worker, now)
    if len(ids) == len(results):
        return Persisted(results, [], [])
    written = [r for r in newest.values() if r.claim.id in ids]
    done = set(map(id, written))
    rest = persist_with_care([r for r in results if id(r) not in done], worker, now)
    return Persisted([*written, *rest.written], rest.lost, rest.locked)


def _attempt(result: Result) -> int:
    return result.claim.attempt


def finish_and_claim(
    done: Sequence[Succeeded], queue: Queue, worker: Worker, now: datetime, wanted: ClaimRequest
) -> tuple[list[Succeeded], list[Job]]:
    """Write what succeeded in a limited queue and claim, at once, what there is room for.

    See `Engine.refill`. Return what was written, and the claimed jobs.
    """
    path = engine_for(worker.using)
    finished, jobs = path.finish_and_claim(_finished(done), queue, worker, now, wanted)
    written = [r for r in done if r.claim.id in finished]
    _announce_final(written, finished, now)
    mark_claimed(jobs, worker, now, wanted.room)
    return written, jobs


class _Batch:
    """Results by what follows them; each of these is written by one statement."""

    def __init__(self, results: Iterable[Result]) -> None:
        self.succeeded: list[Succeeded] = []
        self.waiting: list[tuple[int, int]] = []
        self.failed: list[Failed] = []
        self.decided: list[Decided] = []
        for result in results:
            if isinstance(result, Succeeded):
                self.succeeded.append(result)
            elif isinstance(result, Waits):
                self.waiting.append((result.claim.id, result.claim.attempt))
            elif isinstance(result, Failed):
                self.failed.append(result)
            elif isinstance(result, Decided) and is_plain(result):
                self.decided.append(result)


def _finish(batch: _Batch, worker: Worker, now: datetime) -> set[int]:
    path = engine_for(worker.using)
    final = path.finish(_finished(batch.succeeded), worker, now)
    _announce_final(batch.succeeded, final, now)
    return final | path.park(batch.waiting, worker, now)


def _finished(results: Iterable[Succeeded]) -> list[Finished]:
    return [(r.claim.id, r.claim.attempt, r.value, r.claim.phase is Phase.REQUEST) for r in results]


def _announce_final(succeeded: Sequence[Succeeded], final: set[int], now: datetime) -> None:
    if not final or not job_finished.has_listeners():
        return
    results = [r for r in succeeded if r.claim.id in final]
    for result in results:
        set_values(result.claim.job, {**succeeded_values(now), "result": result.value})
    jobs = [r.claim.job for r in results]
    send_after_commit(job_finished, jobs, jobs[0].using)


def _fail(batch: _Batch, worker: Worker, now: datetime) -> set[int]:
    """Write failures together with what follows them, and plain decisions about earlier ones."""
    failed, decided = batch.failed, batch.decided
    if not (failed or decided):
        return set()
    at_once = decide_at_once(failed, worker.using)
    follows = {r.claim.id: conclusion(r, now) for r in (*at_once, *decided)}
    failing = [_failing(r, follows.get(r.claim.id)) for r in failed]
    ended = {row.id for row in failing if row.state == State.FINAL}
    then = [row for pk, row in follows.items() if pk not in ended]
    ids = engine_for(worker.using).fail(failing, then, worker, now)
    _announce_failed([r for r in failed if r.claim.id in ids])
    _announce_concluded([r for r in (*at_once, *decided) if r.claim.id in ids], follows, now)
    log_results(r for r in at_once if r.claim.id in ids)
    return ids


def _failing(result: Failed, follows: Concluded | None) -> Failing:
    """Return the row of a failure; a job that is given up ends with it, in one move."""
    claim = result.claim
    is_final = follows is not None and follows.state == State.FINAL
    return Failing(
        claim.id,
        claim.attempt,
        claim.phase is Phase.REQUEST,
        State.FINAL if is_final else State.ERROR,
        follows.outcome if follows else Outcome.NONE,
        follows is not None and not is_final,
        result.error,
        result.classes,
        result.traceback,
        claim.snapshot.start_time,
        claim.failure.count if claim.failure else 0,
    )


def _announce_failed(results: Sequence[Failed]) -> None:
    if not results or not job_failed.has_listeners():
        return
    for result in results:
        set_values(result.claim.job, {"state": State.ERROR, "error": result.error, **UNOWNED})
    jobs = [r.claim.job for r in results]
    send_after_commit(job_failed, jobs, jobs[0].using)


def _announce_concluded(
    results: Sequence[Decided], follows: dict[int, Concluded], now: datetime
) -> None:
    final = [r.claim.job for r in results if isinstance(r.decision, GiveUp)]
    if not final or not job_finished.has_listeners():
        return
    for job in final:
        values: dict[str, Any] = {"state": State.FINAL, "outcome": follows[job.pk].outcome}
        set_values(job, {**values, "has_pending_answer": False, "update_time": now, **UNOWNED})
    send_after_commit(job_finished, final, final[0].using)
