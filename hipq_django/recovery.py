"""What time and crashes make necessary: timeouts, lost workers, answers without a job.

Any worker does it for all queues of its instance; several at once do no harm.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import OperationalError
from django.db.models import Exists, Max, OuterRef

from hipq_django import clock, gathering, inbox, moves
from hipq_django.database import is_locked_out, locked, worker_transaction
from hipq_django.hotpath import hot_path
from hipq_django.hotpath.base import EarlyPlace
from hipq_django.models import Answer, Attempt, Job, JobType, Queue, Worker
from hipq_django.registry import get_all_declared
from hipq_django.states import State, Work
from hipq_django.suspects import HARMLESS, loss_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from hipq_django.conf import InstanceSettings
    from hipq_django.models.job import JobQuerySet

logger = logging.getLogger("hipq_django")

BATCH = 500
EARLY_PAGE = 1_000
"""How many early answers of any age are held against the jobs at once."""

EARLY_NEW = 2_000
"""How many new ones are."""

EARLY_SECONDS = 5.0
"""For how long an answer is new: as long as its transaction, and that of a claim, may take."""
WORKERS_KEPT = timedelta(days=1)

_HARMLESS_TIMEOUT = "JobTimeout: the handler was still executing after the answer came"


def time_out_overdue(config: InstanceSettings) -> int:
    """Move running jobs past their deadline to error; return how many.

    A job whose response is in does not time out before its response handler runs: the other
    system was in time. If the handler that sent the request still hangs, another worker goes on.
    """
    using, now = config.database, clock.now(config.database)
    if not hot_path(using).has_overdue(config.name, now):
        return 0
    with worker_transaction(using):
        jobs = list(locked(_overdue(config), skip_locked=True)[:BATCH])
        _name_workers(jobs, using)
        answered, late = _split(jobs, _has_sent_in_time)
        errors = {job.pk: _timeout_text(job) for job in late}
        moves.fail(late, Attempt.Kind.TIMED_OUT, errors, now, using)
        moves.hand_back(answered, _HARMLESS_TIMEOUT, now, using)
    for job in late:
        logger.warning("job=%s attempt=%s event=timed_out", job.pk, job.attempt)
    return len(jobs)


def has_overdue(config: InstanceSettings) -> bool:
    """Return whether there is a job that `time_out_overdue` would move."""
    using = config.database
    found = hot_path(using).has_overdue(config.name, clock.now(using))
    return found and _overdue(config).exists()


def _overdue(config: InstanceSettings) -> JobQuerySet:
    jobs = _known_jobs(config).running()
    jobs = jobs.filter(deadline__lt=clock.in_statement(config.database))
    jobs = jobs.exclude(answered=True, worker__isnull=True)
    return jobs.order_by("queue_id", "deadline")  # as the index of running jobs


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


def recover_lost(
    config: InstanceSettings, choose: Callable[[list[Worker]], list[Worker]] = list
) -> int:
    """Take over the jobs of workers whose heartbeat stopped; return how many.

    `choose` returns those of the live workers of whom the caller is sure that they are silent; of
    these the database, by its own clock, declares lost which it finds silent too.
    """
    using, now = config.database, clock.now(config.database)
    live = Worker.objects.using(using).filter(instance=config.name, state__in=Worker.LIVE)
    for worker in choose(list(live)):
        if worker.is_silent(now):
            _declare_lost(worker)
    dead = _dead_hands(config)
    return _recover(dead, now, using) if any(rows.exists() for rows in dead) else 0


def _declare_lost(worker: Worker) -> None:
    using = worker.using
    silent = Worker.objects.using(using).filter(
        pk=worker.pk,
        state__in=Worker.LIVE,
        heartbeat_time=worker.heartbeat_time,
        heartbeat_time__lt=clock.in_statement(using) - worker.silence,
    )
    with worker_transaction(using):
        # A process that was stopped in this moment keeps its own row locked: nobody waits for it.
        found = locked(silent, skip_locked=True).first()
        if found:
            silent.update(state=Worker.State.LOST)
    if found:
        logger.error(
            "worker=%s event=lost last_heartbeat=%s: its jobs are taken over",
            worker.name, worker.heartbeat_time.isoformat(),
        )  # fmt: skip


def _dead_hands(config: InstanceSettings) -> tuple[JobQuerySet, JobQuerySet]:
    """Jobs that a worker had in hand which is not live any more: running ones, and errors."""
    using = config.database
    live = Worker.objects.using(using).filter(pk=OuterRef("worker_id"), state__in=Worker.LIVE)
    queues = list(_queues(config).values_list("pk", flat=True))
    return Job.objects.using(using).filter(~Exists(live), queue__in=queues).in_hands()


def _recover(dead: Sequence[JobQuerySet], now: datetime, using: str) -> int:
    with worker_transaction(using):
        jobs = [job for rows in dead for job in locked(rows, skip_locked=True)[:BATCH]]
        started, others = _split(jobs, _is_loss)
        deciding, harmless = _split(others, _is_in_error)
        beside = _bystanders([*started, *deciding], using)
        _name_workers(jobs, using)
        decisions = [job for job in deciding if job.pk not in beside]
        ended = moves.lose_decisions(decisions, now, using)
        moves.let_go([job.pk for job in deciding if job.pk not in ended], using, now)
        for kind in (Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER):
            group = [job for job in started if (job.pk in beside) == (kind == kind.BYSTANDER)]
            moves.fail(group, kind, {job.pk: loss_text(job) for job in group}, now, using)
        moves.hand_back(harmless, HARMLESS, now, using)
    if jobs:
        logger.warning("recovered jobs=%s of lost workers, started=%s", len(jobs), len(started))
    return len(jobs)


def _bystanders(lost: Sequence[Job], using: str) -> set[int]:
    """Return the ids of those beside which their worker executed a suspect: a likelier killer.

    Where there was none, each of them may have killed the worker.
    """
    if not lost:
        return set()
    attempts, dead = Attempt.objects.using(using), {job.worker_id for job in lost}
    suspects = dict(attempts.of_suspects(dead).values_list("job", "job__worker"))
    suspects |= dict(attempts.of_suspect_decisions(dead).values_list("job", "job__worker"))
    workers = set(suspects.values())
    return {job.pk for job in lost if job.worker_id in workers and job.pk not in suspects}


def _is_loss(job: Job) -> bool:
    """Whether the job may have killed its worker, or its request may have got lost with it."""
    return job.state == State.RUNNING and not job.prefetched and not _has_sent_in_time(job)


def _is_in_error(job: Job) -> bool:
    """Whether its worker was deciding what follows its error."""
    return bool(job.state == State.ERROR)


class EarlyAnswers:
    """Gives early answers to jobs that were claimed at the same moment.

    An answer that comes while the job's enqueue, or its claim, is not yet committed sees no
    running job, and that claim does not see the answer. One of the two is found here, mostly among
    the newest answers; each call looks at a page of the others as well.
    """

    def __init__(self, config: InstanceSettings) -> None:
        self._config = config
        self._after = EarlyPlace()
        self._marks: deque[tuple[float, int]] = deque()
        """What the newest answer was, and when."""

    def match(self) -> int:
        """Look at the newest ones and the next page; return how many got their job."""
        path = hot_path(self._config.database)
        if not path.has_early(self._config.name):
            self._after = EarlyPlace()
            return 0
        begun, last = path.early_page(self._config.name, self._after, EARLY_PAGE)
        if len(begun) > BATCH:
            begun, last = begun[:BATCH], begun[BATCH - 1]
        matched = self._match([place.answer_id for place in begun])
        self._after = last or EarlyPlace()
        new = path.new_early(self._config.name, self._known_so_far(), EARLY_NEW)
        return matched + self._match(new[:BATCH])

    def _known_so_far(self) -> int:
        """Return the id of an answer that is older than an answer usually takes to commit."""
        now, using = time.monotonic(), self._config.database
        newest = Answer.objects.using(using).aggregate(newest=Max("pk"))["newest"] or 0
        self._marks.append((now, newest))
        while len(self._marks) > 1 and self._marks[1][0] < now - EARLY_SECONDS:
            self._marks.popleft()
        began, known = self._marks[0]
        return known if began < now - EARLY_SECONDS else 0

    def _match(self, ids: Sequence[int]) -> int:
        using, now = self._config.database, clock.now(self._config.database)
        fresh = inbox.fresh_early(self._config.name, now, using).filter(pk__in=ids)
        matched = 0
        for answer in fresh.order_by("pk") if ids else ():
            matched += _match(answer, now, using)
        return matched

    @property
    def is_at_the_beginning(self) -> bool:
        """Whether all answers have been looked at."""
        return self._after == EarlyPlace()


def _match(answer: Answer, now: datetime, using: str) -> bool:
    """Give an early answer to its job; later, where somebody else has locked one of the two."""
    try:
        with worker_transaction(using):
            return inbox.match(answer, now, using, skip_locked=True)
    except OperationalError as error:
        if not is_locked_out(error):
            raise
        return False


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
