"""What the steps of a worker's scheduler share: its context, and how jobs become claims."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from math import inf
from typing import NamedTuple, Protocol, TypeVar

from django.db import transaction

from hipq_django import events, transitions
from hipq_django.answers.aggregation import response_of
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.isolation import Isolation
from hipq_django.domain.pauses import pause_after
from hipq_django.domain.reasons import not_let_start
from hipq_django.domain.redaction import as_shown
from hipq_django.domain.serialization import error_of
from hipq_django.domain.states import NONE, Phase
from hipq_django.engines import engine_for
from hipq_django.engines.rows import set_parents, set_types
from hipq_django.job_types.registry import find_declared
from hipq_django.models import Answer, Job, JobType, Queue, Worker
from hipq_django.scheduler import companions
from hipq_django.scheduler.current_batch import CurrentBatch
from hipq_django.scheduler.polling import HeldBackScans, StartDelay
from hipq_django.signals import job_started, send_after_commit
from hipq_django.transitions.values import RESERVATION_SECONDS, Claim, snapshot

PAGE_SIZE = 500
"""How many jobs one statement claims, or reads to be looked at."""

STALE_SECONDS = RESERVATION_SECONDS / 2
"""How long ago a claim may have been sent without another look at whether it holds."""

ANSWER_SECONDS = 1.0
"""A reply to such a look counts from the moment at which it comes, unless it took longer than this:
where the database is far away, nobody can know more."""

TYPES_SECONDS = 1.0
"""How long a worker may go on with the job types it has read."""

TYPES_SHARE = 0.02
"""The share of its time for reading them if the database is far away."""

MAX_TYPES_SECONDS = 30.0
"""How old they may be at most."""


Written = TypeVar("Written")


class JobRunner(Protocol):
    """Runs the claims: threads in a worker, the caller itself in a test."""

    batch: CurrentBatch
    """Where the results are delivered."""

    @property
    def backlog(self) -> int:
        """How many claims have not started."""

    def free_slots(self) -> int:
        """Return how many jobs would start at once."""

    def prefetch_slots(self) -> int:
        """Return how many more may be claimed ahead of a free thread."""

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the claims, in their order."""

    def executing(self) -> list[Claim]:
        """Return the claims that have started."""

    def release_stale(self) -> None:
        """Deliver as released the claims that no thread is free to start."""


class Admitted(NamedTuple):
    """The outcome of an admission to one queue."""

    claims: list[Claim]
    """Committed, and not started yet."""
    moved: int = 0
    """How many jobs got another time, or were settled by an early answer."""
    is_full: bool | None = None
    """Whether the next end of a job makes room for a waiting one; None: not known."""
    resume_after: tuple[int, int] | None = None
    """The rank and id behind which the next pass looks for jobs that are not held back."""
    has_more: bool = False
    """Whether the queue has more such jobs."""
    is_contended: bool = False
    """Whether another worker was admitting to the queue at that moment."""


class KnownTypes:
    """The job types that this process has code for, and the others; read at intervals."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._read_at = 0.0
        self.by_id: dict[int, JobType] = {}
        self.unknown: list[int] = []
        """The ids of those that it has no code for."""

    def read(self) -> None:
        """Read them, unless that was done a moment ago."""
        began = time.monotonic()
        if began < self._read_at:
            return
        worker = self._worker
        rows = JobType.objects.using(worker.using).filter(instance=worker.instance)
        self.by_id = {r.id: r for r in rows if find_declared(r.instance, r.name, r.kind)}
        self.unknown = [row.id for row in rows if row.id not in self.by_id]
        ended = time.monotonic()
        self._read_at = ended + pause_after(
            ended - began, TYPES_SHARE, least=TYPES_SECONDS, most=MAX_TYPES_SECONDS
        )

    def runnable(self, queue: Queue, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs of a queue that this process has code for, with their queue and type."""
        found: list[Job] = []
        for job in jobs:
            job_type = self.by_id.get(job.job_type_id)
            if job_type is None:
                self._read_at = 0.0  # it was registered since
                continue
            set_parents(job, queue, job_type)
            found.append(job)
        return found


class SchedulerContext:
    """What the steps may see of a worker's scheduler.

    Its row, its engine, the runner of its jobs, and what it remembers about them.
    """

    def __init__(self, worker: Worker, runner: JobRunner) -> None:
        self.worker = worker
        self.using = worker.using
        self.engine = engine_for(worker.using)
        self.runner = runner
        self.batch = runner.batch
        self.types = KnownTypes(worker)
        self._suspects: dict[int, int] = {}
        """The suspects that were claimed: their attempts, by their ids."""
        self.held_back_scans = HeldBackScans()
        self.start_delay = StartDelay()
        self.one_by_one: dict[int, Isolation[int]] = {}
        """The queues, by their ids, of whose jobs one may not be claimable; and these jobs."""
        self._reasons: dict[int, dict[int, str]] = {}
        """Why jobs are not let start, by the ids of their queues and their own."""
        self.not_marked = Isolation[int]("mark_started")
        self.not_released = Isolation[int]("release_unconfirmed")
        self.steps = companions.steps_left_alone()
        self._problems: dict[int, str] = {}
        """What blocks queues, as far as this worker knows; by their ids."""

    def be_careful_with(self, queue: Queue) -> None:
        """Claim the jobs of a queue in parts from now on, and leave those alone that fail."""
        self.one_by_one.setdefault(queue.id, Isolation("claim"))

    def left_in(self, queue: Queue) -> set[int]:
        """Return the ids of a queue's jobs that are left alone at present."""
        left = self.one_by_one.get(queue.id)
        return left.ids if left else set()

    def refused_starts(self, queue: Queue) -> dict[int, str]:
        """Return the jobs that the database does not let start, by their ids, with the reasons."""
        left, said = self.one_by_one.get(queue.id), self._reasons.get(queue.id, {})
        return {pk: said[pk] for pk in left.at_fault if pk in said} if left else {}

    def note_problem(self, queue: Queue, problem: str) -> bool:
        """Note what blocks a queue here, or `NONE`; return whether that is to be logged.

        It is not if the queue's row says it. The row alone does not tell: another worker, for which
        nothing blocks the queue, may have just written that.
        """
        before = self._problems.pop(queue.id, NONE)
        if problem != NONE:
            self._problems[queue.id] = problem
        return problem not in (NONE, before, queue.throttler_problem)

    def claim_by(
        self,
        queue: Queue,
        jobs: Sequence[Job],
        room: int,
        write: Callable[[Sequence[Job], int], Iterable[Written]],
    ) -> list[Written]:
        """Claim locked jobs by `write(jobs, room)`; return what that has returned.

        In a queue whose jobs are claimed one by one, `write` gets copies, in savepoints: a claim
        that fails leaves no trace in the jobs that are tried again.
        """
        left = self.one_by_one.get(queue.id)
        if left is None or not jobs:
            return list(write(jobs, room)) if jobs else []
        by_id, written = {job.id: job for job in jobs}, list[Written]()

        def write_some(ids: Sequence[int]) -> int:
            copies = [copy(by_id[pk]) for pk in ids]
            with transaction.atomic(using=self.using):
                new = list(write(copies, max(room - len(written), 0)))
            written.extend(new)
            return len(new)

        left.move(list(by_id), write_some)
        for pk, error in left.at_fault.items():
            if pk in by_id:
                reason = as_shown(by_id[pk], error_of(error)).partition("\n")[0]
                self._reasons.setdefault(queue.id, {})[pk] = not_let_start(pk, reason)
        if left.is_calm:
            del self.one_by_one[queue.id]
            self._reasons.pop(queue.id, None)
        return written

    def note_suspects(self, jobs: Iterable[Job]) -> None:
        """Note suspects that are claimed now."""
        self._suspects |= {job.id: job.attempt for job in jobs}

    @property
    def has_suspect(self) -> bool:
        """Whether this worker still has a suspect in flight: it takes one at a time."""
        if self._suspects:
            self._suspects = dict(self._suspects.items() & self.batch.attempts())
        return bool(self._suspects)


# From jobs to claims


def handler_claims(context: SchedulerContext, jobs: Sequence[Job], sent: float) -> list[Claim]:
    """Return the handler claims of jobs that one statement, `sent` at a moment, has claimed."""
    set_types(jobs, context.types.by_id)
    emit_started(jobs, context.using)
    return request_claims(jobs, sent)


def request_claims(jobs: Iterable[Job], known_at: float) -> list[Claim]:
    """Return the claims of jobs without an answer: their handlers are to run."""
    request = Phase.REQUEST  # looked up once, not for each job
    return [
        Claim(
            job.id, job.attempt, request, job, snapshot(job), None, None,
            known_at, inf, 0.0, not job.prefetched,
        )
        for job in jobs
    ]  # fmt: skip


def look_again(claims: Sequence[Claim], using: str) -> None:
    """Note which claims still hold, if it took long until their threads may start.

    One look for all of them is quicker than one by each thread. They are committed, so if it fails
    the threads go on, and look for themselves.
    """
    asked = steady()
    if asked < claims[0].known_at + STALE_SECONDS:
        return
    try:
        valid = transitions.holding(claims, clock.now(using), using)
    except Exception as error:
        events.warning("claim_check_failed", "each thread looks for itself", exception=error)
        return
    took = steady() - asked
    known_at = asked + took if STALE_SECONDS < took < ANSWER_SECONDS else asked
    for claim in valid:
        claim.known_at = known_at


def emit_started(jobs: Sequence[Job], using: str) -> None:
    """Say that these jobs are claimed."""
    if job_started.receivers:
        send_after_commit(job_started, jobs, using)
    if events.is_logged(logging.INFO):
        for job in jobs:
            events.info("job_started", row=job)


def response_claim(job: Job, answer: Answer) -> Claim:
    """Return the claim of a job whose answer has come: its response handler is to run."""
    response = response_of(answer, job)
    return Claim(
        job.id, job.attempt, Phase.RESPONSE, job, snapshot(job, response), response,
        is_known_as_started=not job.prefetched,
    )  # fmt: skip
