"""The admission of due jobs of one queue: windows, throttlers, limit and claim."""

from __future__ import annotations

import logging
import time
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import DatabaseError, transaction

from hipq_django import clock, inbox, moves
from hipq_django.claiming import PAGE, announce, request, start_requests
from hipq_django.conf import get_throttlers
from hipq_django.database import in_one_line, is_outage, worker_transaction, write_transaction
from hipq_django.exceptions import ConfigurationError
from hipq_django.gathering import response_of
from hipq_django.hotpath.base import FIRST, Wanted, Which
from hipq_django.models import Answer, Job, JobType, Queue
from hipq_django.payloads import NONE, error_of, storable_text
from hipq_django.ranking import MAX_RANK
from hipq_django.reranking import rank_ahead
from hipq_django.result_writing import persist, settle
from hipq_django.results import Claim, Persisted, Succeeded, keep
from hipq_django.states import Work
from hipq_django.steady import steady
from hipq_django.suspects import is_suspect, was_lost
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

    from hipq_django.current_batch import Lease
    from hipq_django.scheduler import BatchScheduler
    from hipq_django.throttling import Load, Throttler

logger = logging.getLogger("hipq_django")

MAX_PAGES = 4
"""How many pages of held candidates one pass looks through; the next pass goes on behind them."""

SPARE = 8
"""How many candidates more than are likely to fit one look at a limited queue takes."""


class Admission:
    """Admits up to `room` jobs that start at once and `ahead` more that wait for a thread."""

    load = Decimal(0)
    """The sum of the factors of the jobs that run in a limited queue, those admitted included."""
    has_critical = False
    is_full = False

    def __init__(
        self,
        scheduler: BatchScheduler,
        queue: Queue,
        room: int,
        ahead: int,
        lease: Lease | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.using = scheduler.using
        self.path = scheduler.path
        self.queue = queue
        self.room = room
        # Those of a page run while the next ones are looked at.
        self.places = max(room, min(room + ahead, PAGE))
        self.lease = lease
        """Results of jobs that succeeded in the queue, to be written with the claim."""
        self.now, self.began = clock.now(self.using), steady()
        self.problem = ""
        """What keeps some of the queue's jobs, or all of them, from starting."""
        self.throttlers: list[Throttler] = []
        self.running: list[Load] = []
        """What throttlers see of the jobs that ran before."""
        self.admitted: list[Job] = []
        self.put_off: list[tuple[Job, datetime, str]] = []
        """Jobs that get another time, and why."""
        self.has_suspect = scheduler.suspects.has_one_in(scheduler.batch)
        """Whether this worker has a suspect in hand: it takes one at a time."""

    def claim(self) -> list[Claim]:
        """Write what was done in the queue; claim, and start, what may start.

        Nothing is claimed where another worker is scheduling the queue.
        """
        if not self.queue.is_ranked:
            rank_ahead(self.queue)
        self._load_throttlers()
        is_simple = self.queue.is_limited and not (self.problem or self.throttlers)
        is_simple = is_simple and self.queue.throttler_problem == NONE
        started = self._claim_at_once() if is_simple else []
        if started and not self._done:
            return started
        claims: list[Claim] = []
        # The lock of a queue, where that is the first statement, says itself when it is to end.
        locks_first = self._needs_lock and not self._done
        open_transaction = write_transaction if locks_first else worker_transaction
        with open_transaction(self.using):
            persisted = persist(self._done, self.scheduler.worker, self.now)
            if self.problem:
                self._hold_locked()
            elif not started:
                claims = self._claim_with_care()
        if self.lease:
            settle(self.lease, persisted)
        return started or self._start_in_time(claims)

    @property
    def _done(self) -> list[Succeeded]:
        results = self.lease.results if self.lease else []
        return [result for result in results if isinstance(result, Succeeded)]

    def _claim_at_once(self) -> list[Claim]:
        """Claim, and start, what fits and needs no look, as most jobs do not."""
        started: list[Claim] = []
        while size := min(self._page_size(), self.places - len(started)):
            wanted = Wanted(max(self.room - len(started), 0), size, list(self.scheduler.types))
            sent = steady()
            written, jobs = moves.refill(
                self._done, self.queue, self.scheduler.worker, self.now, wanted
            )
            if self.lease:
                settle(self.lease, Persisted(written, [], []))
            started += start_requests(self.scheduler, jobs, sent)
            if len(jobs) < size:
                break
        if started:
            self._note_full(len(jobs) < size)
        return started

    def _start_in_time(self, claims: list[Claim]) -> list[Claim]:
        """Start claims; where throttlers count starts, only as soon as was counted."""
        if self._counts_starts and claims:
            for claim in claims:
                claim.start_by = self.began + self.scheduler.start_delay.seconds
            self.scheduler.start_delay.record(steady() - self.began)
        return self.scheduler.start_jobs(claims)

    def _claim_with_care(self) -> list[Claim]:
        """Claim what windows, throttlers and limit let start, one looked at after the other."""
        if not self._may_scan() or (self._needs_lock and not self._lock()) or self.queue.paused:
            return []
        self._admit()
        self._note_problem()
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
        # Starts are counted from here: the way to the lock may have been long.
        self.now, self.began = clock.now(self.using), steady()
        return True

    def _note_full(self, is_full: bool) -> None:
        """Remember whether the next end of a job makes room for a job that waits."""
        full = self.scheduler.left_full
        (full.add if is_full else full.discard)(self.queue.pk)

    def _load_throttlers(self) -> None:
        try:
            self.throttlers = get_throttlers(self.queue.instance, self.queue.name)
        except ConfigurationError as error:
            self.problem = str(error)
        if self._counts_starts:
            self.places = self.room  # a job that waits for a thread has not started

    @property
    def _counts_starts(self) -> bool:
        return any(callable(getattr(throttler, "admitted", None)) for throttler in self.throttlers)

    # Choosing

    def _admit(self) -> None:
        """Choose the locked jobs that may start, in strict order."""
        began, moved = time.monotonic(), self.scheduler.progress
        if self.throttlers:
            self.running = self.path.running(self.queue)
        self._look_through_pages(self._page_size())
        if self.is_full and self.has_critical:
            self._choose_critical()
        if self.throttlers and not self.admitted and self.scheduler.progress == moved:
            is_whole = self.queue.pk not in self.scheduler.skip_to
            self.scheduler.scans.had(
                self.queue.pk, began, time.monotonic(), self._limits, is_whole=is_whole
            )

    def _may_scan(self) -> bool:
        """Return whether it is worth while to ask the throttlers again."""
        scans, now = self.scheduler.scans, time.monotonic()
        return not self.throttlers or scans.may_begin(self.queue.pk, now, self._limits)

    @property
    def _limits(self) -> object:
        """What of the queue's row throttlers may go by, beside what they write themselves."""
        return self.queue.throttle_limit, self.queue.order

    def _page_size(self) -> int:
        """Return how many jobs may be worth a look; each that is read in vain costs time."""
        if self.throttlers or not self.queue.is_limited:
            return PAGE if self.throttlers else min(self.places, PAGE)
        likely = len(self._done) * 5 // 4 or int(self.queue.throttle_limit)
        return min(self.places, PAGE, likely + SPARE)

    def _look_through_pages(self, size: int) -> None:
        """The first page is always the head of the queue.

        With throttlers a held job does not block those behind it; where many are held, later
        passes go on where the last one stopped.
        """
        resume = self.scheduler.skip_to.pop(self.queue.pk, None)
        after: tuple[int, int] | None = None
        for _ in range(MAX_PAGES):
            jobs = self._due(size, Which(after=after)) if after else self._head(size)
            self._choose(self._admissible(jobs))
            if self.is_full or len(self.admitted) >= self.places or len(jobs) < size:
                return
            if not (self._needs_lock or self.problem):
                return
            after = max((jobs[-1].rank, jobs[-1].pk), resume or (-MAX_RANK, 0))
            resume = None
        if self.throttlers or self.problem:
            self.scheduler.skip_to[self.queue.pk] = after or (-MAX_RANK, 0)

    def _head(self, size: int) -> list[Job]:
        """Return the first page, and learn what a limit needs to know."""
        if not self.queue.is_limited:
            return self._due(size)
        head = self.path.head(self.queue, self.now, size, self._which(FIRST))
        self.load, self.has_critical = head.load, head.has_critical
        return self.scheduler.known(self.queue, head.jobs)

    def _admissible(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs that windows and throttlers let start, one suspect among them."""
        may_take = not self.has_suspect and len(self.admitted) < self.room
        jobs = self._open(jobs if may_take else _with_suspects(jobs, 0))
        jobs = self._pass_throttlers(jobs) if self.throttlers else jobs
        self._reschedule()
        return _with_suspects(jobs, 1)

    def _choose_critical(self) -> None:
        """Jobs of factor 0 are not held back by the limit, wherever they stand in the queue."""
        if len(self.admitted) >= self.places:
            return
        taken = {job.pk for job in self.admitted}
        jobs = [job for job in self._due(PAGE, Which(critical=True)) if job.pk not in taken]
        self._choose(self._admissible(jobs))

    def _choose(self, jobs: Sequence[Job]) -> None:
        """Admit of these jobs what fits under the limit and has a place."""
        fitting = self._fitting(jobs) if self.queue.is_limited else jobs
        self.is_full = len(fitting) < len(jobs)
        chosen: list[Job] = []
        for job in fitting:
            if self._has_place(job, len(self.admitted) + len(chosen)):
                chosen.append(job)
        chosen = self._locked(chosen)
        if self._counts_starts and chosen and not self._tell_throttlers(len(chosen)):
            return
        self.admitted += chosen
        self.has_suspect = self.has_suspect or any(is_suspect(job.error) for job in chosen)
        if self.queue.is_limited:
            self.load += sum((job.throttle_factor for job in chosen), Decimal(0))

    def _fitting(self, jobs: Sequence[Job]) -> Sequence[Job]:
        factors = [job.throttle_factor for job in jobs]
        indexes = admit_by_weight(factors, self.load, self.queue.throttle_limit)
        return [jobs[index] for index in indexes]

    def _has_place(self, job: Job, before: int) -> bool:
        """A job that lost its worker is never claimed ahead of a free thread.

        So it is certain next time whether it had started, and the count of its losses is exact.
        """
        return before < (self.room if was_lost(job.error) else self.places)

    def _locked(self, jobs: list[Job]) -> list[Job]:
        """Lock what throttlers were asked about: they may hold very many, which need no lock."""
        if not self.throttlers:
            return jobs
        locked = self.scheduler.known(self.queue, self.path.lock_unchanged(jobs))
        if len(locked) < len(jobs):
            self.scheduler.scans.forget(self.queue.pk)
        return locked

    def _tell_throttlers(self, count: int) -> bool:
        """Let throttlers write down that so many jobs start; return whether they could."""
        try:
            with transaction.atomic(using=self.using):
                self._write_starts(count)
        except Exception as error:  # it is code of the project's
            if is_outage(error):
                raise
            self._hold(f"throttler raised {error_of(error)}")
            return False
        return True

    def _write_starts(self, count: int) -> None:
        before = self.queue.throttler_state
        for throttler in self.throttlers:
            admitted = getattr(throttler, "admitted", None)
            if callable(admitted):
                admitted(self.queue, self.now + self.scheduler.start_delay.span, count)
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
            if is_outage(error):
                raise
            self._hold(self._masked(in_one_line(error), asked))
            return [job for job in jobs if job.answered]
        for job in asked:
            verdict = verdicts[job.id]
            # A time that is past would bring the job back at once: it is held.
            if isinstance(verdict, Reschedule) and verdict.at > self.now:
                reason = job.masked_reason(str(verdict.reason))
                self.put_off.append((job, verdict.at, reason))
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

    def _due(self, limit: int, which: Which = FIRST) -> list[Job]:
        rows = self.path.due(self.queue, self.now, limit, self._which(which))
        return self.scheduler.known(self.queue, rows)

    def _which(self, which: Which) -> Which:
        """Leave out what cannot start here, so that it keeps nothing from being seen."""
        return which._replace(
            without_types=tuple(self.scheduler.unknown_types),
            without_suspects=self.has_suspect,
            locks=not self.throttlers,
        )

    def _open(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs whose windows are open; the others get their next opening.

        Windows guard the request: a job whose answer is there already does not wait for one.
        """
        open_now: list[Job] = []
        for job in jobs:
            if job.answered or not job.time_windows:
                open_now.append(job)
                continue
            try:
                opening = self._next_opening(job)
            except Exception as error:  # a zone that this machine lacks, say
                self._pass_over(job, error)
                continue
            if opening <= self.now:
                open_now.append(job)
            else:
                self.put_off.append((job, opening, "its time window is closed"))
        return open_now

    def _next_opening(self, job: Job) -> datetime:
        windows, zone = parse_windows(job.time_windows), job.job_type.zone
        if is_open(windows, self.now, zone):
            return self.now
        return next_opening(windows, self.now, zone)

    def _pass_over(self, job: Job, error: Exception) -> None:
        """Leave a job that cannot be judged where it is; those behind it go on."""
        self._hold(f"job {job.pk} cannot start: {error_of(error)}")

    def _reschedule(self) -> None:
        """Give jobs that are put off their new time."""
        free = {job.pk for job in self._locked([job for job, _, _ in self.put_off])}
        for job, moment, reason in self.put_off:
            if job.pk in free:
                moves.reschedule(job, moment, self.now)
                self.scheduler.progress += 1
                logger.info("job=%s rescheduled=%s reason=%r", job.pk, moment.isoformat(), reason)
        self.put_off = []

    def _hold_locked(self) -> None:
        if self._lock():
            self._hold(self.problem)
            self._note_problem()

    def _hold(self, problem: str) -> None:
        """Remember what holds the queue back, or a part of it."""
        self.problem = storable_text(problem)
        if self.queue.throttler_problem != self.problem:
            logger.error("queue=%s held: %s", self.queue, self.problem)

    def _note_problem(self) -> None:
        """Write what is wrong, or that nothing is any more."""
        problem = self.problem or NONE
        if self.queue.throttler_problem != problem:
            self.queue.throttler_problem = problem
            Queue.objects.using(self.using).filter(pk=self.queue.pk).update(
                throttler_problem=problem
            )

    # Starting

    def _start(self, jobs: list[Job]) -> list[Claim]:
        if not jobs:
            return []
        suspects = [job for job in jobs if is_suspect(job.error)]
        moves.claim(jobs, self.scheduler.worker, self.now, room=self.room)
        self.scheduler.suspects.claimed(suspects)
        answers = inbox.take_early(jobs, self.now, self.using)
        announce(jobs, self.using)
        return self._claims(jobs, answers)

    def _claims(self, jobs: Sequence[Job], answers: dict[int, Answer]) -> list[Claim]:
        claims: list[Claim] = []
        for job in jobs:
            answer = answers.get(job.id)
            if answer is None:
                claims.append(request(job, steady()))
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


def _with_suspects(jobs: Sequence[Job], number: int) -> list[Job]:
    """Return the jobs without the suspects behind the first so many."""
    left: list[Job] = []
    for job in jobs:
        if is_suspect(job.error):
            number -= 1
            if number < 0:
                continue
        left.append(job)
    return left
