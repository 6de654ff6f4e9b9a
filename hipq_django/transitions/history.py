"""The failed attempts of a job: their numbers, and the last one.

Each row counts those before it, so that only the last one has to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.db.models import OuterRef, Subquery

from hipq_django.domain.retries import Counts, Failure, failure_of
from hipq_django.engines import engine_for
from hipq_django.models import Attempt, Job, Worker
from hipq_django.transitions.values import Failed


def attempt_of(result: Failed, worker: Worker, now: datetime) -> Attempt:
    """Return the row of an attempt whose handler raised."""
    return Attempt(
        job_id=result.claim.id,
        attempt=result.claim.attempt,
        error=result.error,
        traceback=result.traceback,
        exception_classes=result.classes,
        worker=worker.name,
        start_time=result.claim.start_time(now),
        end_time=now,
    )


def record_attempts(attempts: Sequence[Attempt], using: str) -> None:
    """Record failed attempts; the first record of an attempt stays."""
    before = _last([a.job_id for a in attempts if a.attempt > 1], using)
    for attempt in attempts:
        last = before.get(attempt.job_id)
        counts = _counts(last) if last else Counts()
        attempt.failures, attempt.losses, attempt.interrupted = counts.with_attempt(attempt.kind)
    Attempt.objects.using(using).bulk_create(attempts, ignore_conflicts=True)


def _counts(attempt: Attempt) -> Counts:
    return Counts(attempt.failures, attempt.losses, attempt.interrupted)


def failures_of(jobs: Iterable[Job], using: str) -> dict[int, Failure]:
    """Return the last failure of each job; one query."""
    ids = [job.pk for job in jobs]
    last = _last(ids, using)
    return {pk: failure_after(last.get(pk)) for pk in ids}


def failure_after(last: Attempt | None) -> Failure:
    """Return the failure that the last failed attempt of a job was."""
    if last is None:
        return Failure(count=1, losses=0, classes=())
    failure = failure_of(_counts(last), last.kind, last.exception_classes)
    return replace(failure, lost_decisions=last.lost_decisions)


def failures_before(attempts: Mapping[int, int], using: str) -> dict[int, int]:
    """Return how many attempts of each job failed; `attempts` are their present ones, by id."""
    again = [pk for pk, attempt in attempts.items() if attempt > 1]
    return dict.fromkeys(attempts, 0) | (engine_for(using).failures(again) if again else {})


def _last(ids: Sequence[int], using: str) -> dict[int, Attempt]:
    """Return the last failed attempt of each job; one query, one look-up by index for each."""
    if not ids:
        return {}
    newest = Attempt.objects.filter(job=OuterRef("pk")).order_by("-attempt").values("pk")[:1]
    jobs = Job.objects.using(using).filter(pk__in=ids).order_by()
    rows = Attempt.objects.using(using).filter(pk__in=jobs.values_list(Subquery(newest)))
    return {row.job_id: row for row in rows.defer("error", "traceback").order_by()}
