"""Handles timeouts and lost workers.

Each worker does this for all queues of its instance; several at the same time do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from django.db.models import Exists, OuterRef
from django.utils import translation

from hipq_django import events, transitions
from hipq_django.answers import aggregation
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.states import Phase, State
from hipq_django.domain.suspects import HARMLESS, loss_text
from hipq_django.engines import engine_for
from hipq_django.job_types.registry import known_names
from hipq_django.models import Attempt, Job, JobType, Worker
from hipq_django.models.job import JobQuerySet

PAGE_SIZE = 500
"""How many jobs are moved in one transaction, whose locks others meet."""
WORKERS_KEPT = timedelta(days=1)

_HARMLESS_TIMEOUT = "JobTimeout: before the job had started, or after its answer came"


def time_out_overdue(
    config: InstanceSettings, left_alone: Isolation[int] | None = None, judge: Worker | None = None
) -> int:
    """Move running jobs past their deadline to error; return how many.

    A job whose response has come does not time out before its response handler runs: the other
    system was in time. If the handler that sent the request still hangs, another worker goes on.
    Nor does a job time out that a worker has claimed ahead and not started: it is released. A
    `judge` judges only its own attempts, and those of workers that have ended in order.
    """
    using, left_alone = config.database, left_alone or Isolation("time_out_overdue")
    if not engine_for(using).has_overdue(config.name, clock.now(using)):
        return 0
    overdue = _overdue(config).exclude(pk__in=left_alone.ids)
    if judge is not None:
        last = Worker.objects.using(using).filter(pk=OuterRef("last_worker_id"))
        others = last.exclude(pk=judge.pk).exclude(state=Worker.State.STOPPED)
        overdue = overdue.exclude(Exists(others))
    ids = list(overdue.values_list("pk", flat=True)[:PAGE_SIZE])
    return left_alone.move(ids, lambda some: _time_out(overdue.filter(pk__in=some), using))


def _time_out(overdue: JobQuerySet, using: str) -> int:
    now = clock.now(using)
    with worker_transaction(using):
        jobs = list(locked(overdue, skip_locked=True))
        _name_workers(jobs, using)
        harmless, late = _split(jobs, _is_harmless)
        errors = {job.pk: _timeout_text(job) for job in late}
        transitions.fail(late, Attempt.Kind.TIMED_OUT, errors, now, using)
        transitions.release_for_retry(harmless, _HARMLESS_TIMEOUT, now, using)
    return len(jobs)


def _is_harmless(job: Job) -> bool:
    """Whether a worker has claimed the job ahead and not started it, or its answer has come.

    While it waits for its answer, a job may still be marked as claimed ahead; it has no phase then.
    """
    is_ahead = job.prefetched and job.phase != Phase.NONE
    return is_ahead or _has_sent_in_time(job)


def has_overdue(config: InstanceSettings) -> bool:
    """Return whether there is a job that `time_out_overdue` would move."""
    using = config.database
    found = engine_for(using).has_overdue(config.name, clock.now(using))
    return found and _overdue(config).exists()


def _overdue(config: InstanceSettings) -> JobQuerySet:
    """Only of job types that this process has code for: the others are not its to fail."""
    names = known_names(config.name)
    types = JobType.objects.using(config.database).filter(instance=config.name, name__in=names)
    jobs = Job.objects.using(config.database).of_instance(config.name)
    jobs = jobs.past_deadline(clock.in_statement(config.database))
    # As the index of running jobs.
    return jobs.filter(job_type__in=types).order_by("queue_id", "deadline")


def _has_sent_in_time(job: Job) -> bool:
    """Whether the request was answered while the handler that sent it is still executing."""
    return job.has_pending_answer and job.phase == Phase.REQUEST


def _split(jobs: Iterable[Job], test: Callable[[Job], bool]) -> tuple[list[Job], list[Job]]:
    """Return the jobs that pass the test, and the others."""
    passing: list[Job] = []
    others: list[Job] = []
    for job in jobs:
        (passing if test(job) else others).append(job)
    return passing, others


def _timeout_text(job: Job) -> str:
    doing = "did not end" if job.worker_id else "got no answer"
    with translation.override(None):  # what is stored is English
        parts = "" if job.worker_id else aggregation.progress_of(job)
    doing = "did not get all answers" if parts else doing
    seconds = job.timeout + job.extended_seconds
    text = f"JobTimeout: attempt {job.attempt} {doing} within {seconds:g} s"
    return f"{text} ({parts})" if parts else text


def _name_workers(jobs: Sequence[Job], using: str) -> None:
    """Give the copies their workers in one query; None if the worker's row is gone."""
    rows = Worker.objects.using(using).in_bulk({job.worker_id for job in jobs if job.worker_id})
    for job in jobs:
        job.worker = rows.get(job.worker_id) if job.worker_id else None


def recover_lost(
    config: InstanceSettings,
    choose: Callable[[list[Worker]], list[Worker]] = list,
    left_alone: Isolation[int] | None = None,
) -> int:
    """Take over the jobs of workers whose heartbeat stopped; return how many.

    `choose` returns the live workers that the caller has seen to be silent; of these the database
    declares lost those that are silent by its own clock too. `left_alone` are the jobs that the
    calls before have left alone.
    """
    using, now = config.database, clock.now(config.database)
    live = Worker.objects.using(using).filter(instance=config.name, state__in=Worker.LIVE)
    for worker in choose(list(live)):
        if worker.is_silent(now):
            _declare_lost(worker)
    left_alone = left_alone or Isolation("recover_lost")
    left = set(left_alone.ids)  # read once: a leave that ends meanwhile ends with the next call
    dead = [rows.exclude(pk__in=left) for rows in _orphaned(config)]
    return _take_over(config, dead, left, left_alone) if any(rows.exists() for rows in dead) else 0


def _take_over(
    config: InstanceSettings,
    dead: Sequence[JobQuerySet],
    left: set[int],
    left_alone: Isolation[int],
) -> int:
    """Take over the next of the jobs, but for those left alone; suspects last.

    Which worker a suspect may have killed shows only as long as it is owned.
    """
    owners = {pk for rows in dead for pk in rows.values_list("worker", flat=True).distinct()}
    suspects = _suspects_of(owners, config.database)
    others = [
        job for rows in dead for job in rows.exclude(pk__in=suspects).only(*_LOST)[:PAGE_SIZE]
    ]
    recover = partial(_recover, config, beside=_bystanders(others, suspects))
    moved = left_alone.move(sorted(job.pk for job in others), recover)
    if len(others) >= PAGE_SIZE:
        return moved
    return moved + left_alone.move(sorted(suspects.keys() - left), recover)


_LOST = ("state", "phase", "prefetched", "has_pending_answer", "worker")


def _suspects_of(workers: Collection[int | None], using: str) -> dict[int, int]:
    """Return the suspects that workers were executing, or deciding about, each with its worker."""
    attempts = Attempt.objects.using(using)
    suspects = dict(attempts.of_suspects(workers).values_list("job", "job__worker"))
    return suspects | dict(attempts.of_suspect_decisions(workers).values_list("job", "job__worker"))


def _bystanders(jobs: Sequence[Job], suspects: Mapping[int, int]) -> set[int]:
    """Return the ids of the jobs whose worker executed a suspect beside them: a likelier killer.

    Without a suspect, each of them may have killed the worker.
    """
    killed = set(suspects.values())
    lost = [job for job in jobs if job.state == State.ERROR or _is_loss(job)]
    return {job.pk for job in lost if job.worker_id in killed}


def _declare_lost(worker: Worker) -> None:
    using = worker.using
    silent = Worker.objects.using(using).filter(
        pk=worker.pk,
        state__in=Worker.LIVE,
        heartbeat_time=worker.heartbeat_time,
        heartbeat_time__lt=clock.in_statement(using) - worker.silence,
    )
    with worker_transaction(using):
        # A process that was stopped at this moment keeps its own row locked: do not wait for it.
        found = locked(silent, skip_locked=True).first()
        if found:
            silent.update(state=Worker.State.LOST)
    if found:
        events.error(
            "worker_lost",
            "its jobs are taken over",
            worker=worker.name,
            last_heartbeat=worker.heartbeat_time.isoformat(),
        )


def _orphaned(config: InstanceSettings) -> tuple[JobQuerySet, JobQuerySet]:
    """Jobs whose owner is not live any more: running ones, and errors."""
    workers = Worker.objects.using(config.database)
    live = workers.filter(pk=OuterRef("worker_id"), state__in=Worker.LIVE)
    jobs = Job.objects.using(config.database).of_instance(config.name)
    return jobs.filter(~Exists(live)).owned()


def _recover(config: InstanceSettings, ids: Sequence[int], beside: Collection[int]) -> int:
    using, now = config.database, clock.now(config.database)
    with worker_transaction(using):
        dead = [rows.filter(pk__in=ids) for rows in _orphaned(config)]
        jobs = [job for rows in dead for job in locked(rows, skip_locked=True)]
        started, others = _split(jobs, _is_loss)
        deciding, harmless = _split(others, lambda job: job.state == State.ERROR)
        _name_workers(jobs, using)
        decisions = [job for job in deciding if not (job.prefetched or job.pk in beside)]
        ended = transitions.lose_decisions(decisions, now, using)
        transitions.release([job.pk for job in deciding if job.pk not in ended], using, now)
        losses = Attempt.objects.using(using).losses().filter(job__in=started)
        before = set(losses.values_list("job", flat=True))
        texts = {job.pk: loss_text(job, was_lost_before=job.pk in before) for job in started}
        for kind in (Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER):
            group = [job for job in started if (job.pk in beside) == (kind == kind.BYSTANDER)]
            transitions.fail(group, kind, texts, now, using)
        transitions.release_for_retry(harmless, HARMLESS, now, using)
    if jobs:
        events.warning("jobs_recovered", "of lost workers", jobs=len(jobs), started=len(started))
    return len(jobs)


def _is_loss(job: Job) -> bool:
    """Whether the job may have killed its worker, or its request may be lost with the worker."""
    return job.state == State.RUNNING and not job.prefetched and not _has_sent_in_time(job)


def forget_workers(config: InstanceSettings) -> int:
    """Delete the rows of workers that ended a day ago and own no job; locked ones are left."""
    using = config.database
    old = clock.now(using) - WORKERS_KEPT
    owned = Job.objects.using(using).filter(worker=OuterRef("pk"))
    ended = Worker.objects.using(using).filter(instance=config.name, heartbeat_time__lt=old)
    ended = ended.exclude(state__in=Worker.LIVE)
    ended = ended.filter(~Exists(owned.running()), ~Exists(owned.in_error()))
    if not ended.exists():
        return 0
    with worker_transaction(using):
        rows = locked(ended.order_by("pk"), skip_locked=True, to_delete=True)
        free = list(rows.values_list("pk", flat=True)[:PAGE_SIZE])
        gone = Worker.objects.using(using).filter(pk__in=free)
        return int(gone._raw_delete(using) or 0)  # no job names them
