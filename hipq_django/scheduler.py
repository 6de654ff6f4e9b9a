"""The batch scheduler: claims due jobs in batches and writes their results in batches.

Source: hipq README, "Batch Processing Algorithm". Made safe for many workers: a claim is
committed before its handler starts, and one worker at a time admits to a limited queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Protocol

from django.db import DataError

from hipq_django import clock, inbox, moves
from hipq_django.admission import Admission
from hipq_django.claiming import PAGE, claim_together
from hipq_django.conf import get_instance
from hipq_django.database import locked, write_transaction
from hipq_django.gathering import response_of
from hipq_django.hotpath import hot_path
from hipq_django.hotpath.base import Known
from hipq_django.looks import Looks, Scans
from hipq_django.models import Attempt, Job, JobType, Queue
from hipq_django.ranking import MAX_RANK
from hipq_django.registry import get_all_declared
from hipq_django.results import Claim, Result, Succeeded, WaitsFor, keep, log_result, refused
from hipq_django.retries import failure_of
from hipq_django.states import Work
from hipq_django.suspects import Suspects
from hipq_django.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from hipq_django.hotpath.base import Busy
    from hipq_django.models import Worker
    from hipq_django.models.job import JobQuerySet
    from hipq_django.retries import Failure

logger = logging.getLogger("hipq_django")

TYPES_SECONDS = 1.0
"""How long a worker may go on with the job types it has read."""

QUEUES = 50
"""How many plain queues one statement claims from; mostly a few of them fill the places."""


class Executor(Protocol):
    """Who runs the claims: threads in a worker, the caller itself in a test."""

    def free(self) -> int:
        """Return how many jobs would start at once."""

    def ahead(self) -> int:
        """Return how many more may be claimed ahead of a free thread."""

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the claims, in their order."""

    def take_results(self, *, may_wait: bool = False) -> list[Result]:
        """Return, and forget, the results that are there; fewer where they `may_wait`."""

    def give_back(self, results: Sequence[Result]) -> None:
        """Keep results that could not be written for the next pass."""


class BatchScheduler:
    """One worker's scheduler over some queues, all of the instance where none are named."""

    def __init__(self, worker: Worker, executor: Executor) -> None:
        self.worker = worker
        self.using = worker.using
        self.path = hot_path(worker.using)
        self.executor = executor
        self.batch: dict[int, Claim] = {}
        self._replacing = threading.Lock()
        self.progress = 0
        self.contended = False
        self.turns = Turns()
        self.skip_to: dict[int, tuple[int, int]] = {}
        self.suspects = Suspects()
        self.left_full: set[int] = set()
        """The ids of queues whose last admission ended at a job that did not fit."""
        self.unknown_types: list[int] = []
        self.types: dict[int, JobType] = {}
        """The job types that this process has code for, by their ids."""
        self._types_loaded = -TYPES_SECONDS
        self.looks = Looks()
        self.scans = Scans()

    def run_once(self) -> int:
        """Do one pass; return how many jobs were admitted.

        `progress` counts all that this pass moved; `contended` says that another worker was just
        admitting to a queue that has something due.
        """
        self.progress, self.contended = 0, False
        refilled = self.refill()
        if refilled is not None and self.looks.may_wait(time.monotonic()):
            return refilled
        settled = self.persist_batch(may_wait=not self.left_full)
        called = self.turns.take()
        for busy in called:
            self.scans.forget(busy.queue.pk)
        admitted = self.apply_throttler(called)
        if not (admitted and self.looks.may_wait(time.monotonic())):
            admitted += self.apply_throttler(self.fetch_due())
        self.progress += len(settled) + len(admitted)
        return len(admitted) + (refilled or 0)

    @property
    def found_nothing(self) -> bool:
        """Whether the last pass moved nothing and left nothing that another one would move."""
        return not self.progress and not self.contended and not self.skip_to

    # 3 write what the batch did

    def refill(self) -> int | None:
        """Write what was done of one full queue, and admit the next; return how many.

        Both in one transaction: the time from a job's end to the start of the next is lost.
        Return None where no full queue has anything done.
        """
        results = self.executor.take_results() if self.left_full else []
        # The rows of the claims may have changed since: each refill would hand them on to the next.
        ids = [result.claim.kept.queue.id for result in results]
        rows = (self.turns.queues.get(pk) for pk in ids if pk in self.left_full)
        queue = next(filter(None, rows), None)
        if queue is None:
            self.executor.give_back(results)
            return None
        mine = [result for result in results if result.claim.kept.queue.id == queue.id]
        self.executor.give_back([r for r in results if r.claim.kept.queue.id != queue.id])
        done = [r for r in mine if isinstance(r, Succeeded)]
        rest: list[Result] = [r for r in mine if not isinstance(r, Succeeded)]
        try:
            settled = self.persist(rest)
        except BaseException:
            self.executor.give_back(done)
            raise
        self.progress += len(settled)
        return self._refill(queue, done)

    def _refill(self, queue: Queue, done: Sequence[Succeeded]) -> int | None:
        self._load_types()
        room, ahead = self.executor.free(), self.executor.ahead()
        admission = Admission(self, queue, room, ahead, done)
        try:
            admitted = len(admission.claim())
        except DataError:  # one of the results cannot be stored: left to `persist_batch`
            return None
        finally:
            self.executor.give_back(admission.left)
            left = {result.claim.id for result in admission.left}
            settled = [result for result in done if result.claim.id not in left]
            self.replace_batch(settled, [])
            for result in admission.written:
                log_result(result)
        self.progress += len(settled) + admitted
        return admitted

    def persist_batch(self, *, may_wait: bool = False) -> list[Result]:
        """Write the results of the batch; return all that left it, also those that came late.

        They may wait for more where no full queue waits for their room.
        """
        return self.persist(self.executor.take_results(may_wait=may_wait))

    def persist(self, results: list[Result]) -> list[Result]:
        """Do the same with results that were taken already; also beside a pass, in a thread."""
        if not results:
            return []
        try:
            self._persist(results)
        except BaseException:
            self.executor.give_back(results)
            raise
        self.replace_batch(results, [])
        return results

    def _persist(self, results: Sequence[Result]) -> None:
        now = clock.now(self.using)
        try:
            written = self.write(results, now)
        except DataError as error:
            # The database refuses a value, one too large say: that job fails, not the batch.
            if len(results) > 1:
                for result in results:
                    self._persist([result])
                return
            written = moves.persist([refused(results[0], error)], self.worker, now)
        for result in written:
            log_result(result)

    def write(self, results: Sequence[Result], now: datetime) -> list[Result]:
        """Write results; return those that were still this worker's to write."""
        several = [result for result in results if isinstance(result, WaitsFor)]
        others = [result for result in results if not isinstance(result, WaitsFor)]
        written = moves.persist(others, self.worker, now)
        if several:
            # With the answers that came before it was known what they are parts of.
            with write_transaction(self.using):
                waiting = moves.persist(several, self.worker, now)
                inbox.count_early([result.claim.id for result in waiting], now, self.using)
            written += waiting
        return written

    # 1 what is due

    def fetch_due(self) -> list[Busy]:
        """Return the queues that have something to do; one query, no locks."""
        if self.executor.free() + self.executor.ahead() <= 0:
            return []
        return self.turns.after_look(self._look())

    def _look(self) -> list[Busy]:
        """Look from the beginning of each queue, or from its front where that takes too long."""
        now, began = clock.now(self.using), time.monotonic()
        whole = self.looks.is_whole(began)
        queues = self.turns.queues.items()
        known = {pk: self._known(queue, now, whole=whole) for pk, queue in queues}
        found = self.path.look(self.worker.instance, self.worker.queues, now, known)
        for busy in found:
            busy.queue.front = busy.queue.front_at(busy.first_rank, now)
        self.looks.had(began, time.monotonic(), whole=whole)
        return found

    def _known(self, queue: Queue, now: datetime, *, whole: bool) -> Known:
        throttled = get_instance(queue.instance).queue(queue.name).throttlers
        is_strict = not (throttled or self.unknown_types)
        return Known(queue.last_due_rank(now), is_strict, -MAX_RANK if whole else queue.front)

    # 2 which of it may start now

    def apply_throttler(self, due: Sequence[Busy]) -> list[Claim]:
        """Claim and start, queue by queue, what may start now; return the claims.

        Each is committed before it starts. Its handler runs while the next ones are claimed.
        """
        admitted: list[Claim] = []
        places = self._places
        while due and self._places > 0 and len(admitted) < places:
            plain = list(islice(takewhile(self._is_plain, due), QUEUES))
            if plain:
                claims, due = self._claim_together(plain, due[len(plain) :])
            else:
                claims, due = self._claim(due[0]), due[1:]
            admitted += claims
        self.turns.leave(due)
        return admitted

    @property
    def _places(self) -> int:
        return self.executor.free() + self.executor.ahead()

    def _is_plain(self, busy: Busy) -> bool:
        """Whether there is nothing but jobs to be started, and nothing to hold them back."""
        queue = busy.queue
        throttled = get_instance(queue.instance).queue(queue.name).throttlers
        other = busy.has_response or busy.has_error or busy.needs_look or throttled
        return busy.has_startable and queue.is_ranked and not (other or queue.is_limited)

    def _claim_together(
        self, plain: Sequence[Busy], behind: Sequence[Busy]
    ) -> tuple[list[Claim], Sequence[Busy]]:
        """Claim from plain queues; return the claims, and the queues that have their turn next.

        First those that gave nothing: a job needs a look, or another worker was quicker.
        """
        self._load_types()
        limit = min(self._places, PAGE)
        claims = claim_together(self, [busy.queue for busy in plain], limit)
        gave = {claim.kept.queue.id for claim in claims}
        number = len(plain)
        if len(claims) == limit:
            number = 1 + max(n for n, busy in enumerate(plain) if busy.queue.id in gave)
        self.turns.had(plain[number - 1].queue)
        nothing = [busy for busy in plain[:number] if busy.queue.id not in gave]
        look = [busy._replace(needs_look=True) for busy in nothing]
        return claims, [*look, *plain[number:], *behind]

    def _claim(self, busy: Busy) -> list[Claim]:
        self._load_types()
        self.turns.had(busy.queue)
        claims: list[Claim] = []
        if busy.has_error:
            claims += self._take_errors(busy.queue, self._places)
        if busy.has_response:
            claims += self._take_responses(busy.queue, self._places)
        if busy.has_startable and self._places > 0:
            room, ahead = self.executor.free(), self.executor.ahead()
            claims += Admission(self, busy.queue, room, ahead).claim()
        return claims

    # 4 and 5

    def replace_batch(self, settled: Iterable[Result], admitted: Iterable[Claim]) -> None:
        """Current batch = current - settled + admitted."""
        with self._replacing:
            for result in settled:
                self.scans.forget(result.claim.kept.queue.id)
                # A late result of an earlier attempt leaves the claim of the next one where it is.
                if self.batch.get(result.claim.id) is result.claim:
                    del self.batch[result.claim.id]
            for claim in admitted:
                self.batch[claim.id] = claim

    def start_jobs(self, admitted: Iterable[Claim]) -> list[Claim]:
        """Put claims, which are committed, into the batch and hand them to the executor."""
        claims = list(admitted)
        if claims:
            self.replace_batch([], claims)
            self.executor.start(claims)
        return claims

    # Work on jobs that are claimed already

    def _take_responses(self, queue: Queue, limit: int) -> list[Claim]:
        now = clock.now(self.using)
        with write_transaction(self.using):
            waiting = self.jobs(queue).awaiting_response_handler()
            jobs = self.lock(queue, waiting.order_by("id"), limit)
            moves.take(jobs, self.worker, now)
            answers = inbox.take_early(jobs, now, self.using)
            moves.let_go([job.pk for job in jobs if job.pk not in answers], self.using, now)
            taken = [job for job in jobs if job.pk in answers]
            responses = {job.pk: response_of(answers[job.pk], job) for job in taken}
        return self.start_jobs(
            Claim(job.pk, job.attempt, Work.RESPONSE, job, keep(job), responses[job.pk])
            for job in taken
        )

    def _take_errors(self, queue: Queue, limit: int) -> list[Claim]:
        now = clock.now(self.using)
        with write_transaction(self.using):
            errors = self.jobs(queue).in_error().filter(worker=None)
            locked_errors = self.lock(queue, errors.order_by("id"), limit)
            jobs = [job for job in locked_errors if not self._is_deciding(job)]
            moves.take(jobs, self.worker, now)
            failures = _failures(jobs, self.using)
        return self.start_jobs(
            Claim(job.pk, job.attempt, Work.DECISION, job, keep(job), failure=failures[job.pk])
            for job in jobs
        )

    def _is_deciding(self, job: Job) -> bool:
        """Whether it is being decided here about an error that an answer has replaced since.

        That decision is dropped when it is written, before the job is taken up again.
        """
        claim = self.batch.get(job.pk)
        return claim is not None and claim.work is Work.DECISION

    def reclaim(self) -> int:
        """Put back jobs that the database says are in these hands, but that are not.

        They were claimed by a transaction whose commit was never confirmed. Return how many.
        """
        rows = Job.objects.using(self.using).filter(worker=self.worker)
        held = (pk for jobs in rows.in_hands() for pk in jobs.values_list("pk", flat=True))
        ids = [pk for pk in held if pk not in self.batch]
        if not ids:
            return 0
        now = clock.now(self.using)
        with write_transaction(self.using):
            strays = list(locked(rows.live().filter(pk__in=ids).order_by("pk")))
            moves.hand_back(strays, "HandedBack: the claim was not confirmed", now, self.using)
        return len(strays)

    # What admission shares with it

    def jobs(self, queue: Queue) -> JobQuerySet:
        """Return the queue's jobs on this instance's database, whatever a router would say."""
        return queue.jobs.using(self.using)

    def lock(self, queue: Queue, rows: JobQuerySet, limit: int) -> list[Job]:
        """Lock and return up to `limit` rows that this process has code for."""
        if self.unknown_types:
            rows = rows.exclude(job_type__in=self.unknown_types)
        return self.known(queue, locked(rows, skip_locked=True)[:limit])

    def known(self, queue: Queue, rows: Iterable[Job]) -> list[Job]:
        """Return the jobs that this process has code for, with their queue and type."""
        known: list[Job] = []
        for job in rows:
            job_type = self.types.get(job.job_type_id)
            if job_type is None:
                self._types_loaded = -TYPES_SECONDS  # it was registered since
                continue
            # What the descriptors of the two fields would do, at a tenth of the cost.
            job._state.fields_cache |= {"queue": queue, "job_type": job_type}
            known.append(job)
        return known

    def _load_types(self) -> None:
        """Learn which job types there are and which of them have code here, now and then."""
        if time.monotonic() - self._types_loaded < TYPES_SECONDS:
            return
        known = {declared.name for declared in get_all_declared(self.worker.instance)}
        rows = JobType.objects.using(self.using).filter(instance=self.worker.instance)
        self.types = {row.pk: row for row in rows if row.name in known}
        self.unknown_types = [row.pk for row in rows if row.name not in known]
        self._types_loaded = time.monotonic()


def _failures(jobs: Sequence[Job], using: str) -> dict[int, Failure]:
    """Return what is known of each job's last failure; one query."""
    history: dict[int, list[Attempt]] = defaultdict(list)
    rows = Attempt.objects.using(using).filter(job__in=[job.pk for job in jobs])
    for attempt in rows.defer("traceback", "error").order_by("job", "-attempt"):
        history[attempt.job_id].append(attempt)
    return {job.pk: _failure(history[job.pk]) for job in jobs}


def _failure(attempts: Sequence[Attempt]) -> Failure:
    kinds = [attempt.kind for attempt in attempts]
    return failure_of(kinds, attempts[0].exception_classes if attempts else ())
