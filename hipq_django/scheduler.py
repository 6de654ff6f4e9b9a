"""The batch scheduler: claims due jobs in batches and writes their results in batches.

Source: hipq README, "Batch Processing Algorithm". Made safe for many workers: a claim is
committed before its handler starts, and one worker at a time admits to a limited queue.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from itertools import islice, takewhile
from math import inf
from typing import TYPE_CHECKING, Protocol

from hipq_django import clock, inbox, moves
from hipq_django.admission import Admission
from hipq_django.claiming import PAGE, claim_together
from hipq_django.conf import get_instance
from hipq_django.database import is_locked_out, is_refusal, locked, worker_transaction
from hipq_django.gathering import response_of
from hipq_django.hotpath import hot_path
from hipq_django.hotpath.base import GivenUpError, Known
from hipq_django.looks import Looks, Scans, StartDelay
from hipq_django.models import Job, JobType, Queue
from hipq_django.payloads import NONE, error_of, storable_text
from hipq_django.ranking import MAX_RANK
from hipq_django.registry import get_all_declared
from hipq_django.result_writing import write
from hipq_django.results import RESERVATION_SECONDS, Claim, Released, Result, Succeeded, keep
from hipq_django.states import Work
from hipq_django.steady import steady
from hipq_django.suspects import Suspects
from hipq_django.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from hipq_django.current_batch import CurrentBatch, Lease
    from hipq_django.hotpath.base import Busy
    from hipq_django.models import Worker
    from hipq_django.models.job import JobQuerySet
    from hipq_django.retries import Failure

logger = logging.getLogger("hipq_django")

TYPES_SECONDS = 1.0
"""How long a worker may go on with the job types it has read."""

ANSWER_SECONDS = 1.0
"""How long the database may take to answer a claim, and the answer still counts as fresh."""

QUEUES = 50
"""How many plain queues one statement claims from; mostly a few of them fill the places."""


class Executor(Protocol):
    """Who runs the claims: threads in a worker, the caller itself in a test."""

    batch: CurrentBatch
    """Where the results are delivered."""

    @property
    def backlog(self) -> int:
        """How many claims have not started."""

    def free(self) -> int:
        """Return how many jobs would start at once."""

    def ahead(self) -> int:
        """Return how many more may be claimed ahead of a free thread."""

    def start(self, claims: Sequence[Claim]) -> None:
        """Run the claims, in their order."""

    def executing(self) -> list[Claim]:
        """Return the claims that have started."""

    def release_stale(self) -> None:
        """Deliver as released the claims that no one is free to start."""


class BatchScheduler:
    """One worker's scheduler over some queues, all of the instance where none are named."""

    def __init__(self, worker: Worker, executor: Executor) -> None:
        self.worker = worker
        self.using = worker.using
        self.path = hot_path(worker.using)
        self.executor = executor
        self.batch = executor.batch
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
        self.start_delay = StartDelay()
        self.scans = Scans()

    def run_once(self) -> int:
        """Do one pass; return how many jobs were admitted.

        `progress` counts all that this pass moved; `contended` says that another worker was just
        admitting to a queue that has something due.
        """
        self.progress, self.contended = 0, False
        self._look_after_reservations()
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

    # Claims that have not started

    def _look_after_reservations(self) -> None:
        """Give back what no thread takes, and write down what started in spite of its name."""
        self.executor.release_stale()
        before = steady() - RESERVATION_SECONDS
        slow = [
            claim
            for claim in self.executor.executing()
            if not claim.is_known_as_started and claim.started_at < before
        ]
        if slow:
            moves.mark_started(slow, self.worker)
            for claim in slow:
                claim.is_known_as_started = True

    def confirm(self, claim: Claim) -> bool:
        """Return whether a claim that waited for too long holds, and starts; from any thread."""
        return moves.confirm_start(claim, self.worker, clock.now(self.using))

    # 3 write what the batch did

    def refill(self) -> int | None:
        """Write what was done of one full queue, and admit the next; return how many.

        Both in one transaction: the time from a job's end to the start of the next is lost.
        Return None where no full queue has anything done.
        """
        done = self.batch.queues_with_results() if self.left_full else set[int]()
        # The rows of the claims may have changed since: each refill would hand them on to the next.
        rows = (self.turns.queues.get(pk) for pk in done & self.left_full)
        queue = next(filter(None, rows), None)
        if queue is None:
            return None
        with self.batch.lease_of(queue.pk) as lease:
            return self._refill(queue, lease)

    def _refill(self, queue: Queue, lease: Lease) -> int | None:
        before = len(lease.results)
        rest = [result for result in lease.results if not isinstance(result, Succeeded)]
        write(lease, rest, self.worker)
        admitted: list[Claim] = []
        try:
            admitted = self._admit(queue, lease)
        except GivenUpError:
            raise
        except Exception as error:
            if not (is_refusal(error) or is_locked_out(error)):
                raise
            return None  # one of the results cannot be stored: left to `persist_batch`
        finally:
            self.progress += before - len(lease.results) + len(admitted)
        return len(admitted)

    def persist_batch(self, *, may_wait: bool = False) -> list[Result]:
        """Write the results of the batch; return all that left it, also those that came late.

        They may wait for more where no full queue waits for their room.
        """
        return self.write_leased(self.batch.lease(more_come=may_wait and self.executor.backlog > 0))

    def write_leased(self, lease: Lease) -> list[Result]:
        """Do the same with results that are leased already; also beside a pass, in a thread."""
        with lease:
            results = lease.results
            if any(isinstance(r, Released) and r.claim.start_by < inf for r in results):
                self.start_delay.too_short()
            written = write(lease, results, self.worker)
        self.scans.forget_all(result.claim.kept.queue.id for result in written)
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
        # Read once for each claim: threads change it meanwhile.
        while due and (now := self._places) > 0 and len(admitted) < places:
            plain = list(islice(takewhile(self._is_plain, due), QUEUES))
            if plain:
                claims, due = self._claim_together(plain, due[len(plain) :], now)
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
        held_back = throttled or queue.is_limited or queue.throttler_problem != NONE
        held_back = held_back or not queue.is_ranked
        other = busy.has_response or busy.has_error or busy.needs_look
        return busy.has_startable and not (other or held_back)

    def _claim_together(
        self, plain: Sequence[Busy], behind: Sequence[Busy], places: int
    ) -> tuple[list[Claim], Sequence[Busy]]:
        """Claim from plain queues; return the claims, and the queues that have their turn next.

        First those that gave nothing: a job needs a look, or another worker was quicker.
        """
        self._load_types()
        limit = min(places, PAGE)
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
        """Claim from one queue; what is wrong with it stops no other."""
        self._load_types()
        self.turns.had(busy.queue)
        claims: list[Claim] = []
        with self._failing_alone(busy.queue):
            if busy.has_error:
                claims += self._take_errors(busy.queue, self._places)
            if busy.has_response:
                claims += self._take_responses(busy.queue, self._places)
            if busy.has_startable and self._places > 0:
                claims += self._admit(busy.queue)
        return claims

    @contextmanager
    def _failing_alone(self, queue: Queue) -> Iterator[None]:
        """Pass a queue over that raises or is locked; an outage is everybody's business."""
        try:
            yield
        except GivenUpError:
            raise
        except Exception as error:
            if is_locked_out(error):
                logger.warning("queue=%s passed over: somebody holds a lock it needs", queue)
            elif is_refusal(error):
                self._hold(queue, error)
            else:
                raise

    def _admit(self, queue: Queue, lease: Lease | None = None) -> list[Claim]:
        room, ahead = self.executor.free(), self.executor.ahead()
        return Admission(self, queue, room, ahead, lease).claim()

    def _hold(self, queue: Queue, error: Exception) -> None:
        problem = storable_text(error_of(error))
        rows = Queue.objects.using(self.using).filter(pk=queue.pk)
        if rows.exclude(throttler_problem=problem).update(throttler_problem=problem):
            logger.error("queue=%s held: %s", queue, problem, exc_info=error)

    # 4 and 5

    def start_jobs(self, admitted: Iterable[Claim]) -> list[Claim]:
        """Put claims, which are committed, into the batch and hand them to the executor.

        They are as fresh as the answer of the database; unless that was a long time in coming,
        because this process was stopped say.
        """
        claims = list(admitted)
        now = steady()
        for claim in claims:
            if now < claim.known_at + ANSWER_SECONDS:
                claim.known_at = now
        if claims:
            self.batch.add(claims)
            self.executor.start(claims)
        return claims

    # Work on jobs that are claimed already

    def _take_responses(self, queue: Queue, limit: int) -> list[Claim]:
        now = clock.now(self.using)
        with worker_transaction(self.using):
            waiting = self.jobs(queue).awaiting_response_handler()
            jobs = self.lock(queue, waiting.order_by("id"), limit)
            moves.take(jobs, self.worker, now)
            answers = inbox.take_early(jobs, now, self.using)
            moves.let_go([job.pk for job in jobs if job.pk not in answers], self.using, now)
            taken = [job for job in jobs if job.pk in answers]
            claims = [
                Claim(
                    job.pk, job.attempt, Work.RESPONSE, job, keep(job),
                    response_of(answers[job.pk], job),
                )
                for job in taken
            ]  # fmt: skip
        return self.start_jobs(claims)

    def _take_errors(self, queue: Queue, limit: int) -> list[Claim]:
        now = clock.now(self.using)
        with worker_transaction(self.using):
            errors = self.jobs(queue).in_error().filter(worker=None)
            locked_errors = self.lock(queue, errors.order_by("id"), limit)
            deciding = self._deciding()
            jobs = [job for job in locked_errors if job.pk not in deciding]
            failures = moves.failures_of(jobs, self.using)
            jobs = self._without_suspects(jobs, failures)
            moves.take(jobs, self.worker, now)
            claims = [
                Claim(job.pk, job.attempt, Work.DECISION, job, keep(job), failure=failures[job.pk])
                for job in jobs
            ]
        return self.start_jobs(claims)

    def _without_suspects(self, jobs: Sequence[Job], failures: Mapping[int, Failure]) -> list[Job]:
        """Leave all but one of those whose decisions may have killed workers, while that is out."""
        suspects = [job for job in jobs if failures[job.pk].lost_decisions]
        if not suspects:
            return list(jobs)
        taken = [] if self.suspects.has_one_in(self.batch) else suspects[:1]
        self.suspects.claimed(taken)
        return [job for job in jobs if job in taken or job not in suspects]

    def _deciding(self) -> set[int]:
        """Return the ids of jobs that are being decided here.

        An answer may have replaced the error that it is about: then the decision is dropped when it
        is written, and only then the job is taken up again.
        """
        return {claim.id for claim in self.batch if claim.work is Work.DECISION}

    def reclaim(self) -> int:
        """Put back jobs that the database says are in these hands, but that are not.

        They were claimed by a transaction whose commit was never confirmed. Return how many.
        """
        rows = Job.objects.using(self.using).filter(worker=self.worker)
        held = (row for jobs in rows.in_hands() for row in jobs.values_list("pk", "attempt"))
        known = self.batch.attempts()
        ids = [row[0] for row in held if row not in known]
        if not ids:
            return 0
        now = clock.now(self.using)
        with worker_transaction(self.using):
            mine = rows.live().filter(pk__in=ids).order_by("pk")
            strays = list(locked(mine, skip_locked=True))
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
