"""The fast path for results: a whole batch is written in few statements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from hipq_django.domain.retries import GiveUp
from hipq_django.domain.states import Outcome, Phase, State
from hipq_django.engines import engine_for
from hipq_django.engines.values import ClaimRequest, Concluded, Failing, Finished
from hipq_django.models import Job, Queue, Worker
from hipq_django.signals import job_failed, job_finished
from hipq_django.transitions.decisions import conclusions, decide_at_once, is_plain
from hipq_django.transitions.outcomes import (
    announce,
    failed_values,
    final_values,
    note_succeeded,
)
from hipq_django.transitions.ownership import mark_claimed
from hipq_django.transitions.row_by_row import note_claims_given_up, persist_row_by_row
from hipq_django.transitions.values import (
    Decided,
    Failed,
    Persisted,
    Result,
    Succeeded,
    Waits,
)


def persist(results: Sequence[Result], worker: Worker, now: datetime) -> Iterator[Persisted]:
    """Write the results of jobs that the worker still owns; yield what became of them.

    A few statements for the whole batch: one for all that succeeded, one for all that wait, one
    for all that failed and what follows. None waits for a row that another transaction has locked.
    The results that they leave are then written row by row in one transaction.
    """
    newest = _newest(results)
    batch = _Batch(newest)
    ids = _finish(batch, worker, now) | _fail(batch, worker, now)
    if len(ids) == len(results):
        yield Persisted(results, [], [], batch.at_once, batch.finished)
        return
    written = [r for r in newest if r.claim.id in ids]
    yield Persisted(written, [], [], batch.at_once, batch.finished)
    done = set(map(id, written))
    yield from persist_row_by_row([r for r in results if id(r) not in done], worker, now)


R = TypeVar("R", bound=Result)


def _newest(results: Sequence[R]) -> Sequence[R]:
    """Return the results, of several attempts of a job only that of the newest one."""
    newest = {r.claim.id: r for r in results}
    if len(newest) == len(results):  # as nearly always
        return results
    return list({r.claim.id: r for r in sorted(results, key=_attempt)}.values())


def _attempt(result: Result) -> int:
    return result.claim.attempt


def finish_and_claim(
    done: Sequence[Succeeded], queue: Queue, worker: Worker, now: datetime, wanted: ClaimRequest
) -> tuple[list[Succeeded], list[Job]]:
    """Write the successes in a limited queue and claim the jobs that then fit, at once.

    See `Engine.finish_and_claim`. Return the written results, and the claimed jobs.
    """
    engine, done = engine_for(worker.using), _newest(done)
    finished, jobs = engine.finish_and_claim(_finished(done), queue, worker, now, wanted)
    written = [r for r in done if r.claim.id in finished]
    _announce_succeeded(written, finished, worker.using, now)
    mark_claimed(jobs, worker, now, wanted.room)
    return written, jobs


class _Batch:
    """Results by what follows them; each of these is written by one statement."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.succeeded: list[Succeeded] = []
        self.waiting: list[tuple[int, int]] = []
        self.failed: list[Failed] = []
        self.decided: list[Decided] = []
        self.at_once: Sequence[Decided] = ()
        """What shipped policies have decided about the failures that were written."""
        self.finished: Collection[int] = ()
        """The ids of those that succeeded and are final now."""
        if set(map(type, results)) == {Succeeded}:  # as nearly always
            self.succeeded = results  # type: ignore[assignment]  # as the condition says
        else:
            self._sort(results)

    def _sort(self, results: Sequence[Result]) -> None:
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
    engine = engine_for(worker.using)
    batch.finished = final = engine.finish(_finished(batch.succeeded), worker, now)
    _announce_succeeded(batch.succeeded, final, worker.using, now)
    return final | engine.park(batch.waiting, worker, now)


def _finished(results: Iterable[Succeeded]) -> list[Finished]:
    request = Phase.REQUEST  # looking up a member takes longer than all the rest
    return [(r.claim.id, r.claim.attempt, r.value, r.claim.phase is request) for r in results]


def _announce_succeeded(
    results: Sequence[Succeeded], final: set[int], using: str, now: datetime
) -> None:
    ended = ((r.claim.job, r.value) for r in results if r.claim.id in final)
    note_succeeded(final, ended, now, using)


def _fail(batch: _Batch, worker: Worker, now: datetime) -> set[int]:
    """Write failures together with what follows them, and plain decisions about earlier ones."""
    failed, decided = batch.failed, batch.decided
    if not (failed or decided):
        return set()
    at_once = decide_at_once(failed, worker.using)
    follows = conclusions((*at_once, *decided), now)
    failing = [_failing(r, follows.get(r.claim.id), now) for r in failed]
    ended = {row.id for row in failing if row.state == State.FINAL}
    then = [row for pk, row in follows.items() if pk not in ended]
    ids = engine_for(worker.using).fail(failing, then, worker, now)
    raised = ((r.claim.job, failed_values(r.error)) for r in failed if r.claim.id in ids)
    announce(job_failed, raised, worker.using, {r.claim.id: r.exception for r in failed})
    errors = {r.claim.id: r.error for r in failed}
    final = [r for r in (*at_once, *decided) if isinstance(r.decision, GiveUp)]
    note_claims_given_up([r.claim for r in final if r.claim.id in ids], worker.using)
    given_up = (
        (r.claim.job, _given_up(errors.get(r.claim.id), follows[r.claim.id], now))
        for r in final
        if r.claim.id in ids
    )
    announce(job_finished, given_up, worker.using)
    batch.at_once = [r for r in at_once if r.claim.id in ids]
    return ids


def _given_up(error: Any, follows: Concluded, now: datetime) -> dict[str, Any]:
    failed = {} if error is None else failed_values(error)
    return failed | final_values(follows.outcome, now)


def _failing(result: Failed, follows: Concluded | None, now: datetime) -> Failing:
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
        claim.start_time(now),
        claim.failure.count if claim.failure else 0,
    )
