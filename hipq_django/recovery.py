"""What time and crashes make necessary: timeouts, lost workers, answers without a job.

Any worker does it for all queues of its instance; several at once do no harm.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Exists, OuterRef

from hipq_django import clock, gathering, inbox, moves
from hipq_django.admission import WORKER_LOST
from hipq_django.database import locked, write_transaction
from hipq_django.hotpath import hot_path
from hipq_django.models import Answer, Attempt, Job, JobType, Queue, Worker
from hipq_django.payloads import NONE
from hipq_django.registry import get_all_declared
from hipq_django.states import State, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from hipq_django.conf import InstanceSettings
    from hipq_django.models.job import JobQuerySet

logger = logging.getLogger("hipq_django")

BATCH = 500
WORKERS_KEPT = timedelta(days=1)

_HARMLESS_LOSS = f"{WORKER_LOST}: before the job had started, or after its answer came"
_HARMLESS_TIMEOUT = "JobTimeout: the handler was still executing after the answer came"


def time_out_overdue(config: InstanceSettings) -> int:
    """Move running jobs past their deadline to error; return how many.

    A job whose response is in does not time out before its response handler runs: the other
    system was in time. If the handler that sent the request still hangs, another worker goes on.
    """
    using, now = config.database, clock.now(config.database)
    if not hot_path(using).has_overdue(config.name, now):
        return 0
    with write_transaction(using):
        overdue = _known_jobs(config).running().filter(deadline__lt=now)
        overdue = overdue.exclude(answered=True, worker__isnull=True)
        overdue = overdue.order_by("queue_id", "deadline")  # as the index of running jobs
        jobs = list(locked(overdue, skip_locked=True)[:BATCH])
        _name_workers(jobs, using)
        answered, late = _split(jobs, _has_sent_in_time)
        errors = {job.pk: _timeout_text(job) for job in late}
        moves.fail(late, Attempt.Kind.TIMED_OUT, errors, now, using)
        moves.hand_back(answered, _HARMLESS_TIMEOUT, now, using)
    for job in late:
        logger.warning("job=%s attempt=%s event=timed_out", job.pk, job.attempt)
    return len(jobs)


def _known_jobs(config: InstanceSettings) -> JobQuerySet:
    """The jobs of types that this process knows: it never fails one that it does not know."""
    using = config.database
    names = [declared.name for declared in get_all_declared(config.name)]
    return Job.objects.using(using).filter(
        queue__in=list(_queues(config).values_list("pk", flat=True)),
        job_type__in=JobType.objects.using(using).filter(instance=config.name, name__in=names),
    )


def _queues(config: InstanceSettings) -> Any:
    return Queue.objects.using(config.database).filter(instance=config.name)


def _has_sent_in_time(job: Job) -> bool:
    """Whether the request was answered while the handler that sent it is still executing."""
    return job.answered and job.work == Work.REQUEST


def _split(jobs: Iterable[Job], test: Callable[[Job], bool]) -> tuple[list[Job], list[Job]]:
    """Return the jobs that pass the test, and the others."""
    passing: list[Job] = []
    others: list[Job] = []
    for job in jobs:
        (passing if test(job) else others).append(job)
    return passing, others


def _timeout_text(job: Job) -> str:
    doing = "was still executing" if job.worker_id else "got no answer"
    parts = "" if job.worker_id else gathering.progress_of(job)
    doing = "got not all answers" if parts else doing
    seconds = job.timeout + job.extended_seconds
    text = f"JobTimeout: attempt {job.attempt} {doing} within {seconds:g} s"
    return f"{text}: {parts}" if parts else text


def _name_workers(jobs: Sequence[Job], using: str) -> None:
    """Give the copies their workers in one query; a worker whose row is gone becomes none."""
    rows = Worker.objects.using(using).in_bulk({job.worker_id for job in jobs if job.worker_id})
    for job in jobs:
        job.worker = rows.get(job.worker_id) if job.worker_id else None


def recover_lost(config: InstanceSettings) -> int:
    """Take over the jobs of workers whose heartbeat stopped; return how many."""
    using, now = config.database, clock.now(config.database)
    live = Worker.objects.using(using).filter(instance=config.name, state__in=Worker.LIVE)
    # Only these are locked: a process that is stopped in this moment would keep its own row.
    if silent := [worker.pk for worker in live if worker.is_silent(now)]:
        with write_transaction(using):
            for worker in locked(live.filter(pk__in=silent).order_by("pk"), skip_locked=True):
                if worker.is_silent(now):
                    _mark_lost(worker)
    return sum(_recover(dead, now, using) for dead in _dead_hands(config) if dead.exists())


def _mark_lost(worker: Worker) -> None:
    worker.state = Worker.State.LOST
    worker.save(using=worker.using, update_fields=["state"])
    logger.error(
        "worker=%s lost: last heartbeat %s", worker.name, worker.heartbeat_time.isoformat()
    )


def _dead_hands(config: InstanceSettings) -> tuple[JobQuerySet, JobQuerySet]:
    """Jobs that a worker had in hand which is not live any more: running ones, and errors."""
    using = config.database
    live = Worker.objects.using(using).filter(pk=OuterRef("worker_id"), state__in=Worker.LIVE)
    queues = list(_queues(config).values_list("pk", flat=True))
    return Job.objects.using(using).filter(~Exists(live), queue__in=queues).in_hands()


def _recover(dead: JobQuerySet, now: datetime, using: str) -> int:
    with write_transaction(using):
        jobs = list(locked(dead, skip_locked=True)[:BATCH])
        _name_workers(jobs, using)
        started, harmless = _split(jobs, _is_loss)
        errors = {job.pk: _loss_text(job) for job in started}
        moves.fail(started, Attempt.Kind.WORKER_LOST, errors, now, using)
        moves.hand_back(harmless, _HARMLESS_LOSS, now, using)
    if jobs:
        logger.warning("recovered jobs=%s of lost workers, started=%s", len(jobs), len(started))
    return len(jobs)


def _is_loss(job: Job) -> bool:
    """Whether the job may have killed its worker, or its request may have got lost with it."""
    return job.state == State.RUNNING and not job.prefetched and not _has_sent_in_time(job)


def _loss_text(job: Job) -> str:
    name = job.worker.name if job.worker else "that had it"
    return f"{WORKER_LOST}: worker {name} stopped while it executed attempt {job.attempt}"


class EarlyAnswers:
    """Gives early answers to jobs that were claimed at the same moment.

    An answer that comes while the job's enqueue, or its claim, is not yet committed sees no
    running job, and that claim does not see the answer. One of the two is found here. Each call
    looks at the next page, so that answers to unknown keys stand in nobody's way.
    """

    def __init__(self, config: InstanceSettings) -> None:
        self._config = config
        self._after = 0

    def match(self) -> int:
        """Look at the next page; return how many answers got their job."""
        using, now = self._config.database, clock.now(self._config.database)
        if not hot_path(using).has_early(self._config.name):
            self._after = 0
            return 0
        early = inbox.fresh_early(self._config.name, now, using).order_by("pk")
        page = list(early.filter(pk__gt=self._after)[:BATCH])
        self._after = page[-1].pk if len(page) == BATCH else 0
        begun = _begun_keys(page, using)
        matched = 0
        for answer in page:
            if (answer.job_type, answer.job_key) in begun:
                with write_transaction(using):
                    matched += inbox.match(answer, now, using)
        return matched

    @property
    def is_at_the_beginning(self) -> bool:
        """Whether all answers have been looked at."""
        return self._after == 0


def _begun_keys(answers: Sequence[Answer], using: str) -> set[tuple[str, str]]:
    """Return type and key of the jobs that are not initial any more, of those that are named."""
    types = JobType.objects.using(using).filter(
        instance__in={a.instance for a in answers}, name__in={a.job_type for a in answers}
    )
    jobs = Job.objects.using(using).filter(
        job_type__in=list(types.values_list("pk", flat=True)),
        job_key__in={answer.job_key for answer in answers},
    )
    jobs = jobs.exclude(job_key=NONE)
    begun: set[tuple[str, str]] = set()
    for rows in (jobs.live().exclude(state=State.INITIAL), jobs.final()):
        begun.update(rows.order_by().values_list("job_type__name", "job_key").distinct())
    return begun


def match_early(config: InstanceSettings) -> int:
    """Look at all early answers once; return how many got their job."""
    early = EarlyAnswers(config)
    matched = early.match()
    while not early.is_at_the_beginning:
        matched += early.match()
    return matched


def expire_early(config: InstanceSettings) -> int:
    """Mark the early answers whose time to live is over as unmatched; return how many.

    Parts that waited for a job which ended without them are late.
    """
    using = config.database
    limit = clock.now(using) - timedelta(seconds=config.answer_ttl_seconds)
    early = Answer.objects.using(using).filter(instance=config.name, status=Answer.Status.EARLY)
    ended = Job.objects.using(using).final().filter(pk=OuterRef("job"))
    early.filter(Exists(ended), job__isnull=False).update(status=Answer.Status.LATE)
    expired = early.filter(job__isnull=True, receive_time__lte=limit)
    count: int = expired.update(status=Answer.Status.UNMATCHED)
    return count


def forget_workers(config: InstanceSettings) -> int:
    """Delete the rows of workers that ended a day ago and have no job in hand."""
    using = config.database
    old = clock.now(using) - WORKERS_KEPT
    held = Job.objects.using(using).filter(worker=OuterRef("pk"))
    ended = Worker.objects.using(using).filter(instance=config.name, heartbeat_time__lt=old)
    ended = ended.exclude(state__in=Worker.LIVE)
    ended = ended.filter(~Exists(held.running()), ~Exists(held.in_error()))
    return int(ended._raw_delete(using))  # no job names them
