"""The admission of due jobs of one queue: windows, throttlers, limit and claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.db import transaction

from hipq_django import events, transitions
from hipq_django.answers import early, effects
from hipq_django.conf.instances import get_throttlers
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import in_one_line, project_code
from hipq_django.database.transactions import worker_transaction, write_transaction
from hipq_django.domain.ordering import MAX_RANK
from hipq_django.domain.reasons import cannot_start
from hipq_django.domain.serialization import error_of, storable_text
from hipq_django.domain.states import NONE
from hipq_django.domain.suspects import is_suspect, was_lost
from hipq_django.domain.throttling import (
    Reschedule,
    Run,
    RunningJob,
    Throttler,
    Verdict,
    admit_by_weight,
    ask,
    candidate_of,
    carried_over,
    may_query,
    running_job_of,
)
from hipq_django.domain.tracebacks import places_of
from hipq_django.engines.values import FIRST, ClaimRequest, Which
from hipq_django.exceptions import ConfigurationError
from hipq_django.maintenance.reranking import rank_ahead
from hipq_django.models import Answer, Job, Queue
from hipq_django.models.masking import said_by_throttlers
from hipq_django.scheduler.context import (
    PAGE_SIZE,
    Admitted,
    SchedulerContext,
    emit_started,
    handler_claims,
    request_claims,
    response_claim,
)
from hipq_django.scheduler.current_batch import Lease
from hipq_django.scheduler.persisting import forget_written
from hipq_django.transitions.values import Claim, Persisted, Succeeded

MAX_PAGES = 4
"""How many pages of jobs that are held back one pass reads; the next one goes on behind them."""

FIRST_PLACE = -MAX_RANK, 0
"""Rank and id before all jobs of a queue."""

EXTRA_CANDIDATES = 8
"""How many more candidates than are likely to fit are read from a limited queue."""


class Admission:
    """Admits due jobs of one queue: as many as there are free slots, and some claimed ahead.

    It claims and returns; the caller starts what is claimed.
    """

    load = Decimal(0)
    """The sum of the factors of a limited queue's running jobs, including those just admitted."""
    has_critical = False
    is_full = False
    looked_at = 0
    """How many jobs were read."""
    moved = 0
    counters: Sequence[Callable[..., None]] = ()
    """The methods of throttlers that count starts."""
    locks_at_reading = True
    """Whether jobs are locked as they are read; otherwise only those that start are locked."""
    passes_over = False
    """Whether the queue has jobs that are left alone at present."""
    problem = ""
    """What keeps some of the queue's jobs, or all of them, from starting."""

    def __init__(
        self,
        context: SchedulerContext,
        queue: Queue,
        *,
        lease: Lease | None = None,
        done: Sequence[Succeeded] = (),
        resume_after: tuple[int, int] | None = None,
    ) -> None:
        self.context = context
        self.using = context.using
        self.queue = queue
        self.slots = context.runner.free_slots()
        # Queries of one page run while the next page is read.
        self.places = max(self.slots, min(self.slots + context.runner.prefetch_slots(), PAGE_SIZE))
        self.lease = lease
        self.done = done
        """Leased results of jobs that succeeded in the queue, to be written with the claim."""
        self.resume_after = resume_after
        """Where the last pass ended that found only jobs that are held back."""
        self._begin()
        self.throttlers: list[Throttler] = []
        self.running: list[RunningJob] = []
        """What throttlers see of the jobs that are running already."""
        self.admitted: list[Job] = []
        self.put_off: list[tuple[Job, datetime, str]] = []
        """Jobs that get another time, with the reason."""
        self.has_suspect = context.has_suspect

    def admit(self) -> Admitted:
        """Write the queue's successes, and claim the jobs that may start.

        Nothing is claimed if another worker is scheduling the queue. The fast path may write only
        some of the results.
        """
        if not self.queue.is_ranked:
            rank_ahead(self.queue)
        self._load_throttlers()
        fast = self._claim_fast()
        if fast.claims:
            return fast
        # If the first statement locks the queue, that statement sets its own time limit.
        locks_first = self._needs_lock and not self.done
        open_transaction = write_transaction if locks_first else worker_transaction
        with open_transaction(self.using):
            written = self._write_done()
            checked = self._show_problem() if self.problem else self._claim_checked()
        self._forget(written)
        if self.counters and checked.claims:
            self._count_start_delay(checked.claims)
        return checked

    def _claim_fast(self) -> Admitted:
        """Claim the jobs that fit and need no check row by row, as most jobs do.

        Claim none if something besides the limit may hold them back.
        """
        may_be_blocked = self.problem or self.throttlers or self.queue.throttler_problem != NONE
        may_be_blocked = may_be_blocked or self.queue.id in self.context.one_by_one
        size, sent = self._page_size(), steady()
        can_claim = self.is_limited and size and self.context.engine.claims_in_sql
        if may_be_blocked or not can_claim:
            return Admitted([])
        wanted = ClaimRequest(self.slots, size, list(self.context.types.by_id))
        written, jobs = transitions.finish_and_claim(
            self.done, self.queue, self.context.worker, self.now, wanted
        )
        self._forget([Persisted(written, [], [])])
        if not jobs:
            return Admitted([])
        is_full = len(jobs) < size
        claims = handler_claims(self.context, jobs, sent)
        return Admitted(claims, is_full=is_full, has_more=not is_full and size < self.places)

    def _write_done(self) -> list[Persisted]:
        if not self.done:
            return []
        return list(transitions.persist(self.done, self.context.worker, self.now))

    def _forget(self, written: Sequence[Persisted]) -> None:
        if self.lease and self.done:
            for persisted in written:
                forget_written(self.lease, persisted)
            left = self.lease.results  # nearly always none
            self.done = [result for result in self.done if result in self.lease] if left else []

    def _count_start_delay(self, claims: Sequence[Claim]) -> None:
        """Let claims, which are committed, start until the moment for which they are counted."""
        for claim in claims:
            claim.start_by = self.began + self.start_seconds
        self.context.start_delay.record(steady() - self.began)

    def _show_problem(self) -> Admitted:
        """Claim nothing, and show at the queue why its throttlers cannot be asked."""
        if self._lock_queue():
            self._block(self.problem)
            self._note_problem()
        return Admitted([])

    def _claim_checked(self) -> Admitted:
        """Claim the jobs that windows, throttlers and limit let start, checked one by one."""
        if not self._may_scan():
            return Admitted([], resume_after=self.resume_after)
        if self._needs_lock and not self._lock_queue():
            return Admitted([], resume_after=self.resume_after, is_contended=True)
        if self.queue.paused:
            return Admitted([])
        self._choose_due()
        claims = self._start(self.admitted)
        self._note_problem()
        has_more = len(self.admitted) >= PAGE_SIZE
        return Admitted(claims, self.moved, self.is_full, self.resume_after, has_more)

    @property
    def _needs_lock(self) -> bool:
        return bool(self.is_limited or self.throttlers)

    def _lock_queue(self) -> bool:
        """Lock the queue and read it again; return False if another worker has locked it."""
        row = self.context.engine.lock(self.queue, self.context.worker)
        if row is None:
            return False
        self.queue = row
        self._begin()  # starts are counted from here: the way to the lock may have been long
        return True

    def _begin(self) -> None:
        """Note when this begins, and within how many seconds counted starts have to be."""
        # In this order: what must start within a time after `now` starts before it is over.
        self.began, self.now = steady(), clock.now(self.using)
        self.is_limited = self.queue.is_limited
        # Read once: the thread that writes results may change it between its two uses.
        self.start_seconds = self.context.start_delay.seconds

    # Choosing

    def _choose_due(self) -> None:
        """Choose the locked jobs that may start, in strict order."""
        began = time.monotonic()
        if self.throttlers:
            self.running = self.context.engine.running(self.queue, self.throttlers)
        self._look_through_pages(self._page_size())
        if self.is_full and self.has_critical and len(self.admitted) < self.places:
            self._choose_critical()
        if self.throttlers:
            self._note_scan(began)

    def _page_size(self) -> int:
        """Return how many jobs to read; each that is read in vain costs time."""
        if self.throttlers or not self.is_limited:
            return PAGE_SIZE if self.throttlers else min(self.places, PAGE_SIZE)
        likely = len(self.done) * 5 // 4 or int(self.queue.own_limit)
        return min(self.places, PAGE_SIZE, likely + EXTRA_CANDIDATES)

    def _look_through_pages(self, size: int) -> None:
        """The first page is always the head of the queue.

        A job that is put off, or that throttlers hold back, does not stop those behind it; where
        many are held back, later passes go on where the last one stopped.
        """
        resume, self.resume_after = self.resume_after, None
        after: tuple[int, int] | None = None
        for _ in range(MAX_PAGES):
            jobs = self._due(size, Which(after=after)) if after else self._first_page(size)
            last = (jobs[-1].rank, jobs[-1].id) if jobs else FIRST_PLACE
            before = self.moved
            self._choose(self._admissible(jobs))
            if self.is_full or len(self.admitted) >= self.places or len(jobs) < size:
                return
            has_moved = self.moved > before
            if not (self._needs_lock or self.problem or self.passes_over or has_moved):
                return
            after, resume = max(last, resume or FIRST_PLACE), None
            size = PAGE_SIZE if has_moved else size
        if self.throttlers or self.problem or self.passes_over:
            self.resume_after = after or FIRST_PLACE

    def _first_page(self, size: int) -> list[Job]:
        """Return the first page, and note the load for the limit."""
        if not self.is_limited:
            return self._due(size)
        head = self.context.engine.first_page(self.queue, self.now, size, self._which(FIRST))
        self.load, self.has_critical = head.load, head.has_critical
        return self.context.types.runnable(self.queue, head.jobs)

    def _due(self, limit: int, which: Which = FIRST) -> list[Job]:
        rows = self.context.engine.due(self.queue, self.now, limit, self._which(which))
        return self.context.types.runnable(self.queue, rows)

    def _which(self, which: Which) -> Which:
        """Leave out jobs that cannot start here, so that they do not hide others."""
        return which._replace(
            without_types=tuple(self.context.types.unknown),
            without_suspects=self.has_suspect,
            locks=self.locks_at_reading,
        )

    def _admissible(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs that windows and throttlers let start, one suspect among them."""
        self.looked_at += len(jobs)
        if left := self.context.left_in(self.queue):
            self.passes_over = True
            jobs = [job for job in jobs if job.id not in left]
        may_take = not self.has_suspect and len(self.admitted) < self.slots
        jobs = self._defer_outside_windows(jobs if may_take else _with_suspects(jobs, 0))
        jobs = self._pass_throttlers(jobs) if self.throttlers else jobs
        if self.put_off:
            self._reschedule()
        return _with_suspects(jobs, 1)

    def _choose_critical(self) -> None:
        """Jobs of factor 0 are not held back by the limit, wherever they stand in the queue."""
        taken = {job.id for job in self.admitted}
        jobs = [job for job in self._due(PAGE_SIZE, Which(critical=True)) if job.id not in taken]
        self._choose(self._admissible(jobs))

    def _choose(self, jobs: Sequence[Job]) -> None:
        """Admit those of the jobs that fit under the limit and have a slot.

        A job that lost its worker is never claimed ahead of a free thread. So it is certain next
        time whether it had started, and the count of its losses is exact.
        """
        fitting = jobs
        if self.is_limited:
            factors = [job.throttle_factor for job in jobs]
            limit, share = self.queue.throttle_limit, self.queue.share
            indexes = admit_by_weight(factors, self.load, limit, share)
            fitting = [jobs[index] for index in indexes]
        self.is_full = len(fitting) < len(jobs)
        chosen: list[Job] = []
        for job in fitting:
            is_lost = job.error != NONE and was_lost(job.error)
            if len(self.admitted) + len(chosen) < (self.slots if is_lost else self.places):
                chosen.append(job)
        chosen = self._lock_jobs(chosen)
        if self.counters and chosen and not self._tell_throttlers(chosen):
            return
        self.admitted += chosen
        self.has_suspect = self.has_suspect or bool(_suspects(chosen))
        if self.is_limited:
            self.load += sum((job.throttle_factor for job in chosen), Decimal(0))

    def _lock_jobs(self, jobs: list[Job]) -> list[Job]:
        """Lock the jobs that were read without a lock; jobs that throttlers hold need none."""
        if self.locks_at_reading:
            return jobs
        locked = self.context.types.runnable(self.queue, self.context.engine.lock_unchanged(jobs))
        if len(locked) < len(jobs):
            self.context.held_back_scans.forget(self.queue.id)
        return locked

    # Windows and throttlers

    def _defer_outside_windows(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs whose windows are open; the others get their next opening.

        Windows apply to the request: a job whose answer has come does not wait for one. A job whose
        windows cannot be read is left where it is; those behind it go on.
        """
        open_now: list[Job] = []
        for job in jobs:
            if job.has_pending_answer or not job.time_windows:
                open_now.append(job)
                continue
            try:
                opening = transitions.first_opening(job, self.now)
            except Exception as error:  # such as a time zone that this machine lacks
                self._block(cannot_start(job.id, error_of(error)))
                continue
            if opening <= self.now:
                open_now.append(job)
            else:
                self.put_off.append((job, opening, "its time window is closed"))
        return open_now

    def _load_throttlers(self) -> None:
        try:
            self.throttlers = get_throttlers(self.queue.instance, self.queue.name)
        except ConfigurationError as error:
            self.problem = str(error)
        if self.throttlers:
            self.locks_at_reading = self.context.held_back_scans.start_most(self.queue.id)
        counters = [getattr(throttler, "admitted", None) for throttler in self.throttlers]
        self.counters = [admitted for admitted in counters if callable(admitted)]
        if self.counters:
            self.places = self.slots  # a job that waits for a thread has not started

    def _may_scan(self) -> bool:
        """Return whether to ask the throttlers again."""
        scans, pk = self.context.held_back_scans, self.queue.id
        return not self.throttlers or scans.may_begin(pk, time.monotonic())

    def _note_scan(self, began: float) -> None:
        scans, pk = self.context.held_back_scans, self.queue.id
        scans.gave(pk, self.looked_at, len(self.admitted))
        if not (self.admitted or self.moved):
            full = self.resume_after is None
            scans.record(pk, began, time.monotonic(), full_scan=full)

    def _pass_throttlers(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs that all throttlers let run; give the rescheduled their time."""
        asked = [job for job in jobs if not job.has_pending_answer]
        verdicts: dict[int, Verdict] = {}

        def failed(error: BaseException) -> None:
            self._block(in_one_line(error, lambda said: self._shown(said, asked)))

        with project_code(self.using, failed):
            verdicts = self._ask(asked)
        for job in asked:
            verdict = verdicts.get(job.id)
            # A time in the past would bring the job back at once: hold it instead.
            if isinstance(verdict, Reschedule) and verdict.at > self.now:
                reason = said_by_throttlers(str(verdict.reason), [job], (), self.queue)
                self.put_off.append((job, verdict.at, reason))
        return [j for j in jobs if j.has_pending_answer or isinstance(verdicts.get(j.id), Run)]

    def _ask(self, jobs: Sequence[Job]) -> dict[int, Verdict]:
        # A savepoint, so that a query that fails in a throttler does not end our transaction.
        may_fail = may_query(self.throttlers)
        with transaction.atomic(using=self.using) if may_fail else nullcontext():
            running = [*self.running, *map(running_job_of, self.admitted)]
            candidates = [candidate_of(job) for job in jobs]
            return ask(self.throttlers, self.queue, self.now, running, candidates)

    def _shown(self, problem: str, asked: Sequence[Job]) -> str:
        """Return what may be stored of an error of a throttler, which may quote its jobs."""
        return said_by_throttlers(problem, (*asked, *self.admitted), self.running, self.queue)

    def _tell_throttlers(self, chosen: Sequence[Job]) -> bool:
        """Let throttlers record how many jobs start; return whether they could."""
        before = self.queue.throttler_state
        latest = self.now + timedelta(seconds=self.start_seconds)

        def failed(error: BaseException) -> None:
            what = f"the hook admitted of a throttler raised {error_of(error)}"
            self._block(self._shown(what, chosen), places_of(error))

        with project_code(self.using, failed), transaction.atomic(using=self.using):
            self.queue.throttler_state = carried_over(before, self.throttlers, self.now)
            for admitted in self.counters:
                admitted(self.queue, self.now, len(chosen), latest)
            if self.queue.throttler_state != before:
                self._update_queue(throttler_state=self.queue.throttler_state)
            return True
        return False

    def _reschedule(self) -> None:
        """Give rescheduled jobs their new time."""
        times = {job.id: (moment, reason) for job, moment, reason in self.put_off}

        def write(jobs: Sequence[Job], _room: int) -> Sequence[Job]:
            transitions.reschedule({job: times[job.id][0] for job in jobs}, self.now, self.using)
            return jobs

        free = self._lock_jobs([job for job, _, _ in self.put_off])
        for job in self.context.claim_by(self.queue, free, 0, write):
            moment, reason = times[job.id]
            events.info("job_rescheduled", reason, row=job, until=moment.isoformat())
            self.moved += 1
        self.put_off = []

    # What blocks the queue

    def _block(self, problem: str, traceback: str = "") -> None:
        """Remember what blocks the queue, or a part of it."""
        self.problem = storable_text(problem)
        if self.context.note_problem(self.queue, self.problem):
            events.error("queue_blocked", self.problem, queue=self.queue.name, traceback=traceback)

    def _note_problem(self) -> None:
        """Write what blocks the queue, or that nothing does any more."""
        refused = self.context.refused_starts(self.queue) if self.context.one_by_one else {}
        if refused and not self.problem:  # workers that know the same ones say the same
            said = self.queue.throttler_problem
            self._block(said if said in refused.values() else refused[min(refused)])
        problem = self.problem or NONE
        self.context.note_problem(self.queue, problem)
        if self.queue.throttler_problem != problem:
            self.queue.throttler_problem = problem
            self._update_queue(throttler_problem=problem)

    def _update_queue(self, **values: Any) -> None:
        Queue.objects.using(self.using).filter(pk=self.queue.id).update(**values)

    # Starting

    def _claim_jobs(
        self, jobs: Sequence[Job], room: int, early_answers: Sequence[int]
    ) -> Iterable[tuple[Job, Claim | None]]:
        """Claim jobs; return them with their claims, without one if an early answer settles it."""
        transitions.claim(jobs, self.context.worker, self.now, room=room)
        answered = [job for job in jobs if job.has_pending_answer]
        if not (early_answers or answered):  # as nearly always
            return zip(jobs, request_claims(jobs, steady()), strict=True)
        answers = early.take_early(jobs, early_answers, self.using)
        return [(job, self._claim_of(job, answers.get(job.id))) for job in jobs]

    def _claim_of(self, job: Job, answer: Answer | None) -> Claim | None:
        if answer is None:
            [claim] = request_claims([job], steady())
            return claim
        if answer.kind == Answer.Kind.ERROR or not effects.has_response_handler(job):
            effects.apply(answer, job, self.now)
            return None
        transitions.expect_response_handler(job)
        return response_claim(job, answer)

    def _start(self, jobs: list[Job]) -> list[Claim]:
        if not jobs:
            return []
        suspects = {job.id for job in _suspects(jobs)}
        jobs, answers = early.lock_early(jobs, self.now, self.using)
        write = partial(self._claim_jobs, early_answers=answers)
        claimed = self.context.claim_by(self.queue, jobs, self.slots, write)
        if suspects:
            self.context.note_suspects(job for job, _ in claimed if job.id in suspects)
        emit_started([job for job, _ in claimed], self.using)
        claims = [claim for _, claim in claimed if claim is not None]
        self.moved += len(claimed) - len(claims)
        return claims


def _suspects(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.error != NONE and is_suspect(job.error)]


def _with_suspects(jobs: list[Job], number: int) -> list[Job]:
    """Return the jobs without the suspects behind the first so many."""
    left_out = {job.id for job in _suspects(jobs)[number:]}
    return [job for job in jobs if job.id not in left_out] if left_out else jobs
