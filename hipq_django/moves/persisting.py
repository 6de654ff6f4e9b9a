"""What a worker did, written for a whole batch in few statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.hotpath import hot_path
from hipq_django.hotpath.base import Failing
from hipq_django.moves.careful import persist_with_care
from hipq_django.moves.deciding import conclusion, decide_at_once, is_plain
from hipq_django.moves.ends import success
from hipq_django.moves.hands import note_claim
from hipq_django.moves.rows import FREE, set_values
from hipq_django.results import (
    Decided,
    Failed,
    Persisted,
    Result,
    Succeeded,
    Waits,
    log_result,
)
from hipq_django.retries import GiveUp
from hipq_django.signals import job_failed, job_finished, send_after_commit
from hipq_django.states import Outcome, State, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from hipq_django.hotpath.base import Concluded, Finished, Wanted
    from hipq_django.models import Job, Queue, Worker


def persist(results: Sequence[Result], worker: Worker, now: datetime) -> Persisted:
    """Write the results that are still the worker's to write.

    A few statements for the whole batch: one for all that succeeded, one for all that wait, one
    for all that failed and what follows. None waits for a row that somebody else has locked. What
    they leave is looked at row by row in one transaction.
    """
    newest = {r.claim.id: r for r in sorted(results, key=_attempt)}
    batch = list(newest.values())
    ids = _finish(batch, worker, now) | _fail(batch, worker, now)
    written = [r for r in batch if r.claim.id in ids]
    if len(written) == len(results):
        return Persisted(written, [], [])
    done = set(map(id, written))
    rest = persist_with_care([r for r in results if id(r) not in done], worker, now)
    return Persisted([*written, *rest.written], rest.lost, rest.locked)


def _attempt(result: Result) -> int:
    return result.claim.attempt


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


def _announce_final(results: Sequence[Succeeded], now: datetime) -> None:
    if not results or not job_finished.has_listeners():
        return
    for result in results:
        set_values(result.claim.job, {**success(now), "result": result.value})
    jobs = [r.claim.job for r in results]
    send_after_commit(job_finished, jobs, jobs[0].using)


def _fail(results: Sequence[Result], worker: Worker, now: datetime) -> set[int]:
    """Write failures together with what follows them, and plain decisions about earlier ones."""
    failed = [r for r in results if isinstance(r, Failed)]
    decided = [r for r in results if isinstance(r, Decided) and is_plain(r)]
    if not (failed or decided):
        return set()
    at_once = decide_at_once(failed, worker.using)
    follows = {r.claim.id: conclusion(r, now) for r in (*at_once, *decided)}
    failing = [_failing(r, follows.get(r.claim.id)) for r in failed]
    ended = {row.id for row in failing if row.state == State.FINAL}
    then = [row for pk, row in follows.items() if pk not in ended]
    ids = hot_path(worker.using).fail(failing, then, worker, now)
    _announce_failed([r for r in failed if r.claim.id in ids])
    _announce_concluded([r for r in (*at_once, *decided) if r.claim.id in ids], follows, now)
    for result in at_once:
        if result.claim.id in ids:
            log_result(result)
    return ids


def _failing(result: Failed, follows: Concluded | None) -> Failing:
    """Return the row of a failure; a job that is given up ends with it, in one move."""
    claim = result.claim
    is_final = follows is not None and follows.state == State.FINAL
    return Failing(
        claim.id,
        claim.attempt,
        claim.work is Work.REQUEST,
        State.FINAL if is_final else State.ERROR,
        follows.outcome if follows else Outcome.NONE,
        follows is not None and not is_final,
        result.error,
        result.classes,
        result.traceback,
        claim.kept.start_time,
    )


def _announce_failed(results: Sequence[Failed]) -> None:
    if not results or not job_failed.has_listeners():
        return
    for result in results:
        set_values(result.claim.job, {"state": State.ERROR, "error": result.error, **FREE})
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
        set_values(job, {**values, "answered": False, "update_time": now, **FREE})
    send_after_commit(job_finished, final, final[0].using)
