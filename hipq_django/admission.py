"""The admission of due jobs of one queue: windows, throttlers, limit and claim."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import DatabaseError, transaction

from hipq_django import clock, inbox, moves
from hipq_django.claiming import PAGE, announce, request, start_requests
from hipq_django.conf import get_throttlers
from hipq_django.database import in_one_line, write_transaction
from hipq_django.exceptions import ConfigurationError
from hipq_django.gathering import response_of
from hipq_django.hotpath.base import Wanted
from hipq_django.models import Answer, Job, JobType, Queue
from hipq_django.payloads import NONE
from hipq_django.ranking import MAX_RANK
from hipq_django.results import Claim, keep
from hipq_django.states import Work
from hipq_django.throttling import (
    Reschedule,
    Run,
    ThrottlerError,
    Verdict,
    admit_by_weight,
    ask,
    candidate_of,
    load_of,
)
from hipq_django.windows import is_open, next_opening, parse_windows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hipq_django.results import Result, Succeeded
    from hipq_django.scheduler import BatchScheduler
    from hipq_django.throttling import Load, Throttler

logger = logging.getLogger("hipq_django")

MAX_PAGES = 4
"""How many pages of held candidates one pass looks through; the next pass goes on behind them."""

SPARE = 8
"""How many candidates more than are likely to fit one look at a limited queue takes."""

WORKER_LOST = "WorkerLost"
"""How the error of a job begins whose worker died while it had the job in hand."""


class Admission:
    """Admits up to `room` jobs that start at once and `ahead` more that wait for a thread."""

    def __init__(
        self,
        scheduler: BatchScheduler,
        queue: Queue,
        room: int,
        ahead: int,
        done: Sequence[Succeeded] = (),
    ) -> None:
        self.scheduler = scheduler
        self.using = scheduler.using
        self.path = scheduler.path
        self.queue = queue
        self.room = room
        # Those of a page run while the next ones are looked at.
        self.places = max(room, min(room + ahead, PAGE))
        self.done = done
        self.left = list(done)
        """What of `done` is not written yet."""
        self.written: list[Result] = []
        """What of `done` was still this worker's to write."""
        self.now = clock.now(self.using)
        self.throttlers: list[Throttler] = []
        self.load = Decimal(0)
        self.has_critical = False
        self.running: list[Load] = []
        """What throttlers see of the jobs that ran before."""
        self.admitted: list[Job] = []
        self.is_full = False

    def claim(self) -> list[Claim]:
        """Write what was done in the queue; claim, and start, what may start.

        Nothing is claimed where another worker is scheduling the queue.
        """
        problem = self._load_throttlers()
        is_simple = self.queue.is_limited and not (problem or self.throttlers)
        started = self._claim_at_once() if is_simple else []
        if started and not self.left:
            return started
        claims: list[Claim] = []
        with write_transaction(self.using):
            written = self.scheduler.write(self.left, self.now) if self.left else []
            if problem:
                self._hold_locked(problem)
            elif not started:
                claims = self._claim_with_care()
        self.left = []
        self.written += written
        return started or self.scheduler.start_jobs(claims)

    def _claim_at_once(self) -> list[Claim]:
        """Claim, and start, what fits and needs no look, as most jobs do not."""
        started: list[Claim] = []
        while size := min(self._page_size(), self.places - len(started)):
            wanted = Wanted(max(self.room - len(started), 0), size, list(self.scheduler.types))
            written, jobs = moves.refill(
                self.left, self.queue, self.scheduler.worker, self.now, wanted
            )
            self.written += written
            ids = {result.claim.id for result in written}
            self.left = [result for result in self.left if result.claim.id not in ids]
            started += start_requests(self.scheduler, jobs)
            if len(jobs) < size:
                break
        if started:
            self._note_full(len(jobs) < size)
        return started

    def _claim_with_care(self) -> list[Claim]:
        """Claim what windows, throttlers and limit let start, one looked at after the other."""
        if (self._needs_lock and not self._lock()) or self.queue.paused:
            return []
        self._admit()
        if len(self.admitted) >= PAGE:
            self.scheduler.turns.call(self.queue.name)  # there is more where this came from
        self._note_full(self.is_full)
        return self._start(self.admitted)

    @property
    def _needs_lock(self) -> bool:
        return bool(self.queue.is_limited or self.throttlers)

    def _lock(self) -> bool:
        """Lock the queue and read it anew; return False where another worker has it."""
        row = self.path.lock(self.queue, self.scheduler.worker)
        if row is None:
            self.scheduler.contended = True
            return False
        self.queue = row
        return True

    def _note_full(self, is_full: bool) -> None:
        """Remember whether the next end of a job makes room for a job that waits."""
        full = self.scheduler.left_full
        (full.add if is_full else full.discard)(self.queue.pk)

    def _load_throttlers(self) -> str:
        try:
            self.throttlers = get_throttlers(self.queue.instance, self.queue.name)
        except ConfigurationError as error:
            return str(error)
        return ""

    # Choosing

    def _admit(self) -> None:
        """Choose the locked jobs that may start, in strict order."""
        if self.throttlers:
            self.running = self.path.running(self.queue)
        self._look_through_pages(self._page_size())
        if self.is_full and self.has_critical:
            self._choose_critical()

    def _page_size(self) -> int:
        """Return how many jobs may be worth a look; each that is read in vain costs time."""
        if self.throttlers or not self.queue.is_limited:
            return PAGE if self.throttlers else min(self.places, PAGE)
        likely = len(self.done) * 5 // 4 or int(self.queue.throttle_limit)
        return min(self.places, PAGE, likely + SPARE)

    def _look_through_pages(self, size: int) -> None:
        """The first page is always the head of the queue.

        With throttlers a held job does not block those behind it; where many are held, later
        passes go on where the last one stopped.
        """
        resume = self.scheduler.skip_to.pop(self.queue.pk, None)
        after: tuple[int, int] | None = None
        for _ in range(MAX_PAGES if self._needs_lock else 1):
            jobs = self._due(size, after=after) if after else self._head(size)
            self._choose(self._admissible(jobs))
            if self.is_full or len(self.admitted) >= self.places or len(jobs) < size:
                return
            after = max((jobs[-1].rank, jobs[-1].pk), resume or (-MAX_RANK, 0))
            resume = None
        if self.throttlers:
            self.scheduler.skip_to[self.queue.pk] = after or (-MAX_RANK, 0)

    def _head(self, size: int) -> list[Job]:
        """Return the first page, and learn what a limit needs to know."""
        if not self.queue.is_limited:
            return self._due(size)
        unknown = self.scheduler.unknown_types
        head = self.path.head(self.queue, self.now, size, without_types=unknown)
        self.load, self.has_critical = head.load, head.has_critical
        return self.scheduler.known(self.queue, head.jobs)

    def _admissible(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs that windows and throttlers let start."""
        jobs = self._open(jobs)
        return self._pass_throttlers(jobs) if self.throttlers else jobs

    def _choose_critical(self) -> None:
        """Jobs of factor 0 are not held back by the limit, wherever they stand in the queue."""
        if len(self.admitted) >= self.places:
            return
        taken = {job.pk for job in self.admitted}
        jobs = [job for job in self._due(PAGE, critical=True) if job.pk not in taken]
        self._choose(self._admissible(jobs))

    def _choose(self, jobs: Sequence[Job]) -> None:
        """Admit of these jobs what fits under the limit and has a place."""
        fitting = self._fitting(jobs) if self.queue.is_limited else jobs
        self.is_full = len(fitting) < len(jobs)
        before = len(self.admitted)
        for job in fitting:
            if self._has_place(job):
                self.admitted.append(job)
        chosen = self.admitted[before:]
        if self.queue.is_limited:
            self.load += sum((job.throttle_factor for job in chosen), Decimal(0))
        if self.throttlers and chosen:
            self._tell_throttlers(len(chosen))

    def _fitting(self, jobs: Sequence[Job]) -> Sequence[Job]:
        factors = [job.throttle_factor for job in jobs]
        indexes = admit_by_weight(factors, self.load, self.queue.throttle_limit)
        return [jobs[index] for index in indexes]

    def _has_place(self, job: Job) -> bool:
        """A job that lost its worker is never claimed ahead of a free thread.

        So it is certain next time whether it had started, and the count of its losses is exact.
        """
        suspect = job.error != NONE and str(job.error).startswith(WORKER_LOST)
        return len(self.admitted) < (self.room if suspect else self.places)

    def _tell_throttlers(self, count: int) -> None:
        before = self.queue.throttler_state
        for throttler in self.throttlers:
            admitted = getattr(throttler, "admitted", None)
            if callable(admitted):
                admitted(self.queue, self.now, count)
        if self.queue.throttler_state != before:
            Queue.objects.using(self.using).filter(pk=self.queue.pk).update(
                throttler_state=self.queue.throttler_state
            )

    def _pass_throttlers(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs that all throttlers let run; give the rescheduled their time."""
        asked = [job for job in jobs if not job.answered]
        try:
            verdicts = self._ask(asked)
        except (ThrottlerError, DatabaseError) as error:
            self._hold_queue(self._masked(in_one_line(error), asked))
            return [job for job in jobs if job.answered]
        self._note_problem(NONE)
        for job in asked:
            verdict = verdicts[job.id]
            # A time that is past would bring the job back at once: it is held.
            if isinstance(verdict, Reschedule) and verdict.at > self.now:
                self._reschedule(job, verdict.at, job.masked_reason(str(verdict.reason)))
        return [j for j in jobs if j.answered or isinstance(verdicts[j.id], Run)]

    def _ask(self, jobs: Sequence[Job]) -> dict[int, Verdict]:
        # A savepoint, so that a query that fails in a throttler does not end our transaction.
        with transaction.atomic(using=self.using):
            running = [*self.running, *map(load_of, self.admitted)]
            candidates = [candidate_of(job) for job in jobs]
            return ask(self.throttlers, self.queue, self.now, running, candidates)

    def _masked(self, problem: str, asked: Sequence[Job]) -> str:
        """A throttler's error may quote what it was asked about, and what runs."""
        for job in (*asked, *self.admitted):
            problem = job.masked(problem)
        names = {load.job_type for load in self.running}
        types = JobType.objects.using(self.using).filter(instance=self.queue.instance)
        redactors = {row.name: row.redactor for row in types.filter(name__in=names)}
        for load in self.running:
            problem = redactors[load.job_type].knowing(load.job_data).mask_text(problem)
        return problem

    def _due(
        self, limit: int, *, after: tuple[int, int] | None = None, critical: bool = False
    ) -> list[Job]:
        unknown = self.scheduler.unknown_types
        rows = self.path.due(
            self.queue, self.now, limit, after=after, critical=critical, without_types=unknown
        )
        return self.scheduler.known(self.queue, rows)

    def _open(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs whose windows are open; the others get their next opening.

        Windows guard the request: a job whose answer is there already does not wait for one.
        """
        open_now: list[Job] = []
        for job in jobs:
            if job.answered or not job.time_windows:
                open_now.append(job)
                continue
            windows = parse_windows(job.time_windows)
            if is_open(windows, self.now, job.job_type.zone):
                open_now.append(job)
            else:
                opening = next_opening(windows, self.now, job.job_type.zone)
                self._reschedule(job, opening, "its time window is closed")
        return open_now

    def _reschedule(self, job: Job, moment: datetime, reason: str) -> None:
        moves.reschedule(job, moment, self.now)
        self.scheduler.progress += 1
        logger.info("job=%s rescheduled=%s reason=%r", job.pk, moment.isoformat(), reason)

    def _hold_locked(self, problem: str) -> None:
        if self._lock():
            self._hold_queue(problem)

    def _hold_queue(self, problem: str) -> None:
        if self.queue.throttler_problem != problem:
            logger.error("queue=%s held: %s", self.queue, problem)
        self._note_problem(problem)

    def _note_problem(self, problem: str) -> None:
        if self.queue.throttler_problem != problem:
            self.queue.throttler_problem = problem
            Queue.objects.using(self.using).filter(pk=self.queue.pk).update(
                throttler_problem=problem
            )

    # Starting

    def _start(self, jobs: list[Job]) -> list[Claim]:
        if not jobs:
            return []
        moves.claim(jobs, self.scheduler.worker, self.now, room=self.room)
        answers = inbox.take_early(jobs, self.now, self.using)
        announce(jobs, self.using)
        return self._claims(jobs, answers)

    def _claims(self, jobs: Sequence[Job], answers: dict[int, Answer]) -> list[Claim]:
        claims: list[Claim] = []
        for job in jobs:
            answer = answers.get(job.id)
            if answer is None:
                claims.append(request(job))
            elif answer.kind == Answer.Kind.ERROR or not inbox.has_response_handler(job):
                inbox.act(answer, job, self.now)
                self.scheduler.progress += 1
            else:
                moves.expect_response_handler(job)
                claims.append(
                    Claim(
                        job.pk, job.attempt, Work.RESPONSE, job, keep(job),
                        response_of(answer, job),
                    )
                )  # fmt: skip
        return claims
