"""The batch scheduler: claims due jobs in batches and writes their results in batches.

It is safe with many workers: a claim is committed before its handler starts, and one worker at a
time admits to a limited queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice, takewhile
from math import inf

from django.db import DatabaseError
from django.db.models import Exists, OuterRef

from hipq_django import events, extensions, transitions
from hipq_django.answers import early
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.database.errors import LockedRowError
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.ordering import MAX_RANK
from hipq_django.domain.retries import Failure
from hipq_django.domain.serialization import error_of, storable_text
from hipq_django.domain.states import NONE, Phase
from hipq_django.engines.values import ClaimRequest, QueueWork, ScanBounds
from hipq_django.job_types.registry import has_sensitive
from hipq_django.models import Attempt, Job, Queue, Worker
from hipq_django.models.job import JobQuerySet
from hipq_django.models.masking import learn_answers
from hipq_django.scheduler import companions
from hipq_django.scheduler.admission import Admission
from hipq_django.scheduler.context import (
    PAGE_SIZE,
    Admitted,
    JobRunner,
    SchedulerContext,
    handler_claims,
    look_again,
    response_claim,
)
from hipq_django.scheduler.current_batch import FLUSH_RESULTS, Lease
from hipq_django.scheduler.due_times import show_due_times
from hipq_django.scheduler.persisting import write_leased
from hipq_django.scheduler.polling import (
    HeldBackScans,
    ProbePacer,
    QueueRotation,
    has_startable,
    with_jobs,
)
from hipq_django.transitions.values import (
    RESERVATION_SECONDS,
    Claim,
    Released,
    Result,
    Succeeded,
    is_plain_success,
    snapshot,
)

WRITE_SECONDS = 0.025
"""After this time a pass begins to write no more results: what is due waits meanwhile."""

MAX_QUEUES_PER_CLAIM = 50
"""How many plain queues one statement claims from; usually a few of them fill the slots."""

_HAS_LOST_WORKERS = Exists(
    Attempt.objects.filter(job=OuterRef("pk"), attempt=OuterRef("attempt"), lost_decisions__gt=0)
)
"""The condition of errors whose decisions are suspects."""


class BatchScheduler(SchedulerContext):
    """One worker's scheduler over the queues that its row says."""

    known_plain: Sequence[QueueWork] | None = None
    """The plain queues among those of the last probe; None until somebody asks."""
    _has_companions = True
    on_hunger: Callable[[Collection[str]], None] = staticmethod(lambda names: None)
    """Called with the names of queues whose first due job needs a larger share."""
    probed_nothing = False
    """Whether the probe of this pass, after all that it writes, has found nothing to do."""

    def __init__(self, worker: Worker, runner: JobRunner) -> None:
        super().__init__(worker, runner)
        self.config = get_instance(worker.instance)
        self.rotation = QueueRotation()
        self.pacer = ProbePacer()
        self.full_queues: set[int] = set()
        """The ids of queues whose last admission ended at a job that did not fit."""
        self.resume_after: dict[int, tuple[int, int]] = {}
        """Where the next pass goes on in queues that hold very many jobs back, by their ids."""
        self.admitted = 0
        """How many jobs this pass has started."""
        self.moved = 0
        """How many jobs it has moved in any way."""
        self.contended = False
        """Whether another worker was just admitting to a queue that has something due."""
        self.contended_seconds = 0.0
        """For how long such a queue has been left alone, whenever this worker tried."""
        self.left_alone: Isolation[int] = Isolation("claim", "queue_id")
        """The queues that cannot decide at present, for example because of a lock."""
        self.doing: tuple[str, Sequence[Queue]] = ("nothing", ())
        """What a pass is at, and in which queues: named in the log if it takes long."""

    def run_once(self) -> int:
        """Do one pass; return how many jobs were admitted.

        Results come first, because they make room under the limit. A full queue gets its results
        written and the next jobs claimed in one transaction, because it idles between an end and
        the next start.
        """
        self.admitted, self.moved, self.contended, self.contended_seconds = 0, 0, False, 0.0
        self.probed_nothing = False
        if self.batch:
            self.look_after_reservations()
            if self.refill():
                return self.admitted
            self.persist_batch(hold_back=not self.full_queues, seconds=WRITE_SECONDS)
        self._has_companions = bool(extensions.companions())
        if self._has_companions:
            self._stir()
        for due in self._next_due():
            for claims in self.apply_throttler(due):
                self.start_jobs(claims)
        return self.admitted

    def _stir(self) -> None:
        """Let the companions enqueue what is due; serve first the queues where they have."""
        self.doing = "companions", ()
        self.moved += companions.stir(self.config, self.steps, is_busy=bool(self.batch))
        for queue in companions.take_first():
            self.rotation.put_first(queue)

    @property
    def found_nothing(self) -> bool:
        """Whether the last pass moved nothing and left nothing for another one."""
        return not self.moved and self._left_nothing

    @property
    def is_done(self) -> bool:
        """Whether the last pass has seen, after all that it moved, that nothing is left to do.

        What companions have to do it sees only now and then.
        """
        saw_all = self.probed_nothing and not extensions.companions()
        return saw_all and not self.batch and self._left_nothing

    @property
    def _left_nothing(self) -> bool:
        return not self.contended and not self.resume_after

    def forget_pauses(self) -> None:
        """Scan each queue from its start the next time, however slow that was the last time."""
        self.held_back_scans, self.pacer = HeldBackScans(), ProbePacer()

    # Claims that have not started

    def look_after_reservations(self) -> None:
        """Release reservations for which no thread is free; record which have started."""
        self.runner.release_stale()
        before, left = steady() - RESERVATION_SECONDS, self.not_marked.ids
        slow = {
            claim.id: claim
            for claim in self.runner.executing()
            if not claim.is_known_as_started and 0.0 < claim.started_at < before
        }
        ids = [pk for pk in slow if pk not in left]
        self.not_marked.move(
            ids, lambda some: transitions.mark_started([slow[pk] for pk in some], self.worker)
        )

    def confirm(self, claim: Claim) -> bool:
        """Return whether a claim that waited too long still holds, and starts; from any thread."""
        return transitions.confirm_start(claim, self.worker, clock.now(self.using))

    # Writing the results

    def refill(self) -> bool:
        """Write the results of a full queue and claim its next jobs; return if that is enough.

        It is enough if the last probe is recent: then no other queue has waited for long.
        """
        full = self.full_queues and self.full_queues & self.rotation.queues.keys()
        pk = self.batch.queue_with_results(full) if full else None
        if pk is None:
            return False
        with self.batch.lease_of(pk) as lease:
            # The queue's row of the last probe; the one in the claim is as old as the claim.
            was_refilled = self._refill(self.rotation.queues[pk], lease)
        return was_refilled and self.pacer.defer_probe(time.monotonic())

    def _refill(self, queue: Queue, lease: Lease) -> bool:
        self.doing = "refill", [queue]
        before = len(lease.results)
        done = [result for result in lease.results if is_plain_success(result)]
        if len(done) < before:
            rest = [result for result in lease.results if not is_plain_success(result)]
            write_leased(lease, rest, self.worker)
        if not lease.isolation.is_calm:  # as hardly ever: `persist_batch` finds the one at fault
            done = []
        admitted = self.left_alone.together(lambda: self._admit(queue, lease, done))
        self.start_jobs(admitted.claims if admitted else [])
        # What was left, for example because its row is locked.
        write_leased(lease, lease.results, self.worker)
        self.moved += before - len(lease.results)
        return admitted is not None

    def persist_batch(self, *, hold_back: bool = False, seconds: float = inf) -> list[Result]:
        """Write the results of the batch; return all that left it, including late ones.

        With `hold_back` they may wait for a moment, if more are about to come. What is not begun
        after so many `seconds` is left for the next pass: due jobs wait meanwhile.
        """
        self.doing = "results", ()
        until, written = steady() + seconds, list[Result]()
        more_come = hold_back and self.runner.backlog > 0
        while True:
            lease = self.batch.lease(more_come=more_come)
            is_last = len(lease.results) < FLUSH_RESULTS
            written += self.write_lease(lease, until)
            if is_last or steady() >= until or not self.batch.isolation.is_calm:
                break
        self.moved += len(written)
        return written

    def write_lease(self, lease: Lease, until: float = inf) -> list[Result]:
        """Write leased results; return those that left the batch. Also called in the writer."""
        results = lease.results
        if not results:
            return []
        released = [result for result in results if isinstance(result, Released)]
        with lease:
            if any(result.claim.start_by < inf for result in released):
                self.start_delay.too_short()
            written = write_leased(lease, results, self.worker, until)
        self.held_back_scans.forget_all(result.claim.snapshot.queue.id for result in written)
        return written

    # What is due

    def _next_due(self) -> Iterator[Sequence[QueueWork]]:
        """Yield the queues that are next in the rotation, or those of a probe if one is due."""
        first = self.rotation.pop_next()
        for work in first:
            self.held_back_scans.forget(work.queue.id)
        if self._places <= 0:
            self.rotation.keep_rest(first)
            return
        if self.pacer.defer_probe(time.monotonic()):
            if first:
                yield first
            if self.admitted:
                return
        yield self.fetch_due()

    def fetch_due(self) -> list[QueueWork]:
        """Return the queues that have something to do; one query, no locks.

        It scans from the start of each queue, or from its low-water mark where that is slow.
        """
        self.doing = "probe", ()
        now, began = clock.now(self.using), time.monotonic()
        full_scan = self.pacer.is_full_scan_due(began)
        queues = self.rotation.queues.items()
        bounds = {pk: self._bounds(queue, now, full_scan=full_scan) for pk, queue in queues}
        found = self.engine.probe_queues(self.worker, now, bounds)
        for work in found:
            work.queue.low_water_mark = work.queue.low_water_mark_at(work.first_rank, now)
        hungry = {work.queue.name for work in found if work.is_hungry and not work.queue.paused}
        if hungry:
            self.on_hunger(hungry)
        due, self.known_plain = self.rotation.after_probe(found), None
        self.probed_nothing = not due
        self.pacer.record(began, time.monotonic(), full_scan=full_scan, has_found=bool(due))
        return due

    def _bounds(self, queue: Queue, now: datetime, *, full_scan: bool) -> ScanBounds:
        may_be_passed_over = self.types.unknown or self.has_suspect or self.left_in(queue)
        is_strict = not (may_be_passed_over or _throttlers_of(queue))
        low = -MAX_RANK if full_scan else queue.low_water_mark
        return ScanBounds(queue.high_water_mark(now), is_strict, low)

    # Which of the due jobs may start now

    def apply_throttler(self, due: Sequence[QueueWork]) -> Iterator[list[Claim]]:
        """Claim, queue by queue, the jobs that may start now; yield the claims of each commit.

        Their handlers run while the next ones are claimed.
        """
        admitted, places = 0, self._places
        left = places
        while due and left > 0 and admitted < places:
            plain: list[QueueWork] = []
            if self.engine.claims_in_sql:
                plain = list(islice(takewhile(self._is_plain, due), MAX_QUEUES_PER_CLAIM))
            self.doing = "claim", [work.queue for work in plain or due[:1]]
            if plain:
                claims, due = self._claim_plain(plain, due[len(plain) :], left)
                admitted += len(claims)
                yield claims
            else:
                for claims in self._claim(due[0]):
                    admitted += len(claims)
                    yield claims
                due = due[1:]
            left = self._places if due else 0  # threads change it meanwhile
        self.rotation.keep_rest(due)

    @property
    def _places(self) -> int:
        return self.runner.free_slots() + self.runner.prefetch_slots()

    def _is_plain(self, work: QueueWork) -> bool:
        """Whether the queue has only jobs to be started, and nothing that holds them back."""
        queue = work.queue
        held_back = _throttlers_of(queue) or queue.is_limited or queue.throttler_problem != NONE
        held_back = held_back or queue.id in self.one_by_one
        held_back = held_back or not queue.is_ranked
        other = work.has_response or work.has_error or work.needs_check
        return has_startable(work) and not (other or held_back)

    def _claim_plain(
        self, plain: Sequence[QueueWork], behind: Sequence[QueueWork], places: int
    ) -> tuple[list[Claim], Sequence[QueueWork]]:
        """Claim from plain queues; return the claims, and the queues whose turn is next.

        A queue of `plain` that yielded nothing is checked job by job next: it has a job that is not
        claimable in SQL, or another worker was quicker. If the whole claim fails, all of them are
        checked so, and only the queue at fault is passed over. Queues that had nothing at the last
        probe are asked too, so that their new jobs need not wait for the next probe.
        """
        self.types.read()
        limit = min(places, PAGE_SIZE)
        queues = self.rotation.in_turn([*plain, *self._other_plain(plain)])
        claims = self.left_alone.together(lambda: self._claim_together(queues, limit))
        if claims is None:
            return [], [*_to_check(plain), *behind]
        self.rotation.left_more = len(claims) == PAGE_SIZE
        if self.rotation.left_more:
            self.rotation.put_first(claims[-1].snapshot.queue.name)  # it has more
        gave = {claim.snapshot.queue.id for claim in claims}
        number = len(queues)
        if len(claims) == limit:
            number = 1 + max(n for n, work in enumerate(queues) if work.queue.id in gave)
        self.rotation.served(queues[number - 1].queue)
        asked = [work for work in queues[:number] if work in plain]
        check = _to_check(work for work in asked if work.queue.id not in gave)
        return claims, [*check, *(work for work in plain if work not in asked), *behind]

    def _claim_together(self, queues: Sequence[QueueWork], limit: int) -> list[Claim]:
        wanted = ClaimRequest(self.runner.free_slots(), limit, list(self.types.by_id))
        now, sent = clock.now(self.using), steady()
        jobs = transitions.claim_due([work.queue for work in queues], self.worker, now, wanted)
        if not self.left_alone.is_calm:
            self.left_alone.forget({job.queue_id for job in jobs})
        return handler_claims(self, jobs, sent)

    def _other_plain(self, plain: Sequence[QueueWork]) -> list[QueueWork]:
        """Return the plain queues that the last probe knew, if they are few enough for a claim.

        None where no job is in flight and the last claim has left nothing: then the next probe
        comes soon, and the claim is quicker.
        """
        if not (self.batch or self.rotation.left_more):
            return []
        if self.known_plain is None:
            works = map(with_jobs, self.rotation.queues.values())
            self.known_plain = [work for work in works if self._is_plain(work)]
        if len(self.known_plain) > MAX_QUEUES_PER_CLAIM:
            return []
        asked = {work.queue.id for work in plain}
        others = [work for work in self.known_plain if work.queue.id not in asked]
        return others if len(asked) + len(others) <= MAX_QUEUES_PER_CLAIM else []

    def _claim(self, work: QueueWork) -> Iterator[list[Claim]]:
        """Claim from one queue; an error there stops no other queue."""
        self.types.read()
        self.rotation.served(work.queue)
        with self.left_alone.apart(work.queue.id, self._hold_if_at_fault(work.queue)):
            if work.has_error:
                yield self._claim_errors(work.queue)
            if work.has_response:
                yield self._claim_responses(work.queue)
            # Threads that are quick make room all the time: other queues have their turn too.
            has_more, places = has_startable(work), self._places
            while has_more and places > 0 and self._places > 0:
                admitted = self._admit(work.queue)
                has_more, places = admitted.has_more, places - len(admitted.claims)
                yield admitted.claims
            return
        self._pass_over(work.queue)

    def _admit(
        self, queue: Queue, lease: Lease | None = None, done: Sequence[Succeeded] = ()
    ) -> Admitted:
        """Admit to one queue, and note the outcome; first write the leased successes `done`."""
        resume_after = self.resume_after.pop(queue.id, None)
        admission = Admission(self, queue, lease=lease, done=done, resume_after=resume_after)
        admitted = admission.admit()
        self.moved += admitted.moved
        if admitted.is_contended:
            self.left_alone.leave(queue.id, LockedRowError())
            self._note_passed_over(queue)
        else:
            self.left_alone.forget([queue.id])
        if admitted.is_full is not None:
            (self.full_queues.add if admitted.is_full else self.full_queues.discard)(queue.id)
        if admitted.is_full and queue.share is not None:
            self.on_hunger([queue.name])
        if admitted.resume_after:
            self.resume_after[queue.id] = admitted.resume_after
        if admitted.has_more:
            self.rotation.put_first(queue.name)
        return admitted

    def _hold_if_at_fault(self, queue: Queue) -> Callable[[int, Exception], None] | None:
        """Return what shows a failure at the queue, if that still fails with its jobs one by one.

        Then not one of its jobs is at fault, but the queue itself.
        """
        return partial(self._hold, queue) if queue.id in self.one_by_one else None

    def _pass_over(self, queue: Queue) -> None:
        """Pass over a queue in which something has failed; its jobs are claimed with care next."""
        self.be_careful_with(queue)
        self._note_passed_over(queue)

    def _note_passed_over(self, queue: Queue) -> None:
        self.contended = True
        self.contended_seconds = max(self.contended_seconds, self.left_alone.failing_for(queue.id))

    def _hold(self, queue: Queue, _: int, error: Exception) -> None:
        is_hidden = has_sensitive(queue.instance)  # nobody knows which job it is about
        said = f"exception {type(error).__name__}" if is_hidden else error_of(error)
        problem = storable_text(said.partition("\n")[0])  # the rest may quote a row
        with worker_transaction(self.using):
            rows = Queue.objects.using(self.using).filter(pk=queue.id)
            row = locked(rows, skip_locked=True).first()
            if row is not None and row.throttler_problem != problem:
                rows.update(throttler_problem=problem)
        if row is not None and self.note_problem(row, problem):
            raised = None if is_hidden or isinstance(error, DatabaseError) else error
            events.error("queue_blocked", problem, queue=queue.name, exception=raised)

    # Starting

    def start_jobs(self, claims: list[Claim]) -> None:
        """Put claims, which are committed, into the batch and hand them to the runner."""
        if claims:
            self.admitted += len(claims)
            self.moved += len(claims)
            if scheduled := [claim.job for claim in claims if claim.job.due_time is not None]:
                show_due_times(scheduled)  # first: claims that it fails for are released
            self.batch.add(claims)
            for part in companions.prepared(claims) if self._has_companions else [claims]:
                look_again(part, self.using)
                self.runner.start(part)

    # Work on jobs that are claimed already

    def _claim_responses(self, queue: Queue) -> list[Claim]:
        now, slots = clock.now(self.using), self.runner.free_slots()
        with worker_transaction(self.using):
            waiting = queue.jobs.using(self.using).awaiting_response_handler()
            places = slots + self.runner.prefetch_slots()
            jobs = self._lock(queue, waiting.order_by("id"), places)
            jobs, early_answers = early.lock_early(jobs, now, self.using)

            def assign(jobs: Sequence[Job], room: int) -> list[Claim]:
                transitions.assign(jobs, self.worker, now, room=room)
                answers = early.take_early(jobs, early_answers, self.using)
                without = [job.id for job in jobs if job.id not in answers]
                transitions.release(without, self.using, now)
                return [response_claim(job, answers[job.id]) for job in jobs if job.id in answers]

            return self.claim_by(queue, jobs, slots, assign)

    def _claim_errors(self, queue: Queue) -> list[Claim]:
        """Claim the decisions about errors."""
        now, slots = clock.now(self.using), self.runner.free_slots()
        with worker_transaction(self.using):
            errors = queue.jobs.using(self.using).in_error().filter(worker=None)
            if self.has_suspect or not slots:
                errors = errors.exclude(_HAS_LOST_WORKERS)  # or they would hide those behind them
            places = slots + self.runner.prefetch_slots()
            locked_errors = self._lock(queue, errors.order_by("id"), places)
            # An answer may have replaced the error that a decision here is about: then that is
            # dropped when it is written, and only then the job is taken up again.
            deciding = {claim.id for claim in self.batch if claim.phase is Phase.DECISION}
            jobs = [job for job in locked_errors if job.id not in deciding]
            failures = transitions.failures_of(jobs, self.using)
            jobs = self._without_suspects(jobs, failures, slots)
            jobs = self._assign(queue, jobs, slots, now)
            learn_answers(jobs)
            return [
                Claim(
                    job.id, job.attempt, Phase.DECISION, job, snapshot(job), None, failures[job.id],
                    is_known_as_started=not job.prefetched,
                )
                for job in jobs
            ]  # fmt: skip

    def _assign(self, queue: Queue, jobs: Sequence[Job], slots: int, now: datetime) -> list[Job]:
        def assign(jobs: Sequence[Job], room: int) -> Sequence[Job]:
            transitions.assign(jobs, self.worker, now, room=room)
            return jobs

        return self.claim_by(queue, jobs, slots, assign)

    def _without_suspects(
        self, jobs: Sequence[Job], failures: Mapping[int, Failure], slots: int
    ) -> list[Job]:
        """Take only one job at a time whose decisions may have killed workers, and start it first.

        It is never claimed ahead of a free thread, as in an admission.
        """
        suspects = [job for job in jobs if failures[job.id].lost_decisions]
        if not suspects:
            return list(jobs)
        taken = suspects[:1] if slots and not self.has_suspect else []
        self.note_suspects(taken)
        return [*taken, *(job for job in jobs if job not in suspects)]

    def release_unconfirmed(self) -> int:
        """Release jobs that the database says this worker owns, but that it does not know of.

        They were claimed by a transaction whose commit was never confirmed. Return how many.
        """
        rows = Job.objects.using(self.using).filter(worker=self.worker)
        owned = (row for jobs in rows.owned() for row in jobs.values_list("pk", "attempt"))
        known, left = self.batch.attempts(), self.not_released.ids
        ids = [row[0] for row in owned if row not in known and row[0] not in left]
        return self.not_released.move(ids, self._release_unconfirmed)

    def _release_unconfirmed(self, ids: Sequence[int]) -> int:
        now = clock.now(self.using)
        with worker_transaction(self.using):
            rows = Job.objects.using(self.using).filter(worker=self.worker, pk__in=ids)
            mine = rows.live().order_by("pk").select_related("queue", "job_type")
            strays = list(locked(mine, skip_locked=True))
            losses = Attempt.objects.using(self.using).losses().filter(job__in=strays)
            errors = dict(losses.values_list("job", "error"))  # or no suspect would be one any more
            reason = "Released: the claim was not confirmed"
            transitions.release_for_retry(strays, reason, now, self.using, errors=errors)
        return len(strays)

    def _lock(self, queue: Queue, rows: JobQuerySet, limit: int) -> list[Job]:
        """Lock and return up to `limit` rows that this process has code for."""
        types = self.types
        known = rows.exclude(job_type__in=types.unknown).exclude(pk__in=self.left_in(queue))
        return types.runnable(queue, locked(known, skip_locked=True)[:limit])


def _to_check(plain: Iterable[QueueWork]) -> list[QueueWork]:
    return [work._replace(needs_check=True) for work in plain]


def _throttlers_of(queue: Queue) -> Sequence[str]:
    return get_instance(queue.instance).queue(queue.name).throttlers
