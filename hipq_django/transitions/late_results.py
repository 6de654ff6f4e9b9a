"""Late results: their attempt was given up meanwhile, but no new attempt has begun.

A job that timed out, or whose worker seemed lost, is in error or retry with the same attempt. The
result of its handler is worth more than that guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from hipq_django.conf.instances import get_instance
from hipq_django.database.locks import locked
from hipq_django.domain.retries import dotted_name
from hipq_django.domain.states import Phase, State
from hipq_django.domain.throttling import fits
from hipq_django.exceptions import StaleAttemptError
from hipq_django.models import Attempt, Job, Queue, Worker
from hipq_django.transitions.history import attempt_of, record_attempts
from hipq_django.transitions.outcomes import move, succeed
from hipq_django.transitions.updates import rows_of
from hipq_django.transitions.values import Claim, Failed, Result, Succeeded, Waits, WaitsFor

_GUESSED = (Attempt.Kind.TIMED_OUT, Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER)


def is_open(claim: Claim, row: Job | None) -> bool:
    """Return whether the attempt was given up, and no new one has begun.

    An answer takes precedence over the result of the handler that requested it. If an answer was
    set aside, the result of its response handler is too.
    """
    if row is None or claim.phase is Phase.DECISION or row.attempt != claim.attempt:
        return False
    is_given_up = row.state in (State.ERROR, State.RETRY)
    return is_given_up and row.has_pending_answer == (claim.phase is Phase.RESPONSE)


def persist_late(results: Sequence[Result], worker: Worker, now: datetime) -> set[int]:
    """Write late results of locked jobs; return the ids of the jobs that took them.

    Raise `ContendedError` if that cannot be decided while another worker holds the queue.
    """
    ids = [result.claim.id for result in results]
    rows = rows_of(worker.using, ids).select_related("queue", "job_type")
    jobs = {job.pk: job for job in rows}
    guessed = _guessed(jobs.values(), worker.using)
    return {
        result.claim.id
        for result in results
        if result.claim.id in guessed and _write(result, jobs[result.claim.id], worker, now)
    }


class ContendedError(Exception):
    """Another worker is admitting to the queue at this moment."""


def _guessed(jobs: Iterable[Job], using: str) -> set[int]:
    """Return the ids of the jobs whose attempt has an unknown end.

    Otherwise the other system has answered with an error.
    """
    attempts = {job.pk: job.attempt for job in jobs}
    rows = Attempt.objects.using(using).filter(job__in=attempts).exclude(kind__in=_GUESSED)
    known = set(rows.values_list("job_id", "attempt"))
    return {pk for pk, attempt in attempts.items() if (pk, attempt) not in known}


def _write(result: Result, job: Job, worker: Worker, now: datetime) -> bool:
    if isinstance(result, Succeeded):
        succeed(job, result.value, now)
        return True
    if isinstance(result, Failed):
        return _say_why(result, job, worker, now)
    if isinstance(result, Waits | WaitsFor):
        return _wait(result, job, now)
    return False


def _say_why(result: Failed, job: Job, worker: Worker, now: datetime) -> bool:
    """Replace the guess by the error that was raised, unless a decision was made about it.

    What only tells the handler that its attempt was given up is no other error than that.
    """
    is_decided = job.state != State.ERROR or job.worker_id is not None
    if is_decided or dotted_name(StaleAttemptError) in result.classes:
        return False
    _forget_guess(job)
    record_attempts([attempt_of(result, worker, now)], job.using)
    rows_of(job.using, [job.pk]).update(error=result.error, update_time=now)
    return True


def _wait(result: Waits | WaitsFor, job: Job, now: datetime) -> bool:
    """Let the job wait after all for the answer to its request, which was sent."""
    if not _is_same_request(result.claim, job) or job.deadline <= now or not _has_room(job):
        return False
    _forget_guess(job)
    moment = min(job.scheduled_run_time, job.start_time)
    when = {"scheduled_run_time": moment, "rank": job.queue.ordering.rank(moment, job.priority)}
    expects = result.expects if isinstance(result, WaitsFor) else []
    move(job, State.RUNNING, {**when, "expects": expects}, now)
    return True


def _is_same_request(claim: Claim, job: Job) -> bool:
    """Return whether the answer would still find the job: a retry handler may have changed it."""
    keys = (claim.snapshot.job_key, claim.job.job_key)
    return job.job_key in keys and job.timeout == claim.snapshot.timeout


def _has_room(job: Job) -> bool:
    """Return whether the job may count as running again; the queue is locked from then on."""
    if get_instance(job.queue.instance).queue(job.queue.name).throttlers:
        return False  # they are asked before a claim
    if not job.queue.is_limited:
        return True
    row = Queue.objects.using(job.using).filter(pk=job.queue_id)
    queue = locked(row, skip_locked=True).first()
    if queue is None:
        raise ContendedError
    return fits(job.throttle_factor, queue.jobs.using(job.using).load(), queue.throttle_limit)


def _forget_guess(job: Job) -> None:
    Attempt.objects.using(job.using).filter(job=job, attempt=job.attempt).delete()
