"""The claims that a worker has in flight, from their commit to the commit of their results.

A result always has one owner: a claim stays in the batch until its result is committed, and a
result that a writer has leased comes back unless the writer says that it is committed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Self

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.database.errors import CANCELLED_SECONDS
from hipq_django.domain.waits import LastingLocks
from hipq_django.transitions.values import Claim, Result, refusal

FLUSH_RESULTS = 500
"""When this many results wait, they are written at once, whatever the scheduler is doing."""

MAX_UNWRITTEN = 2_000
"""While this many results are not written yet, nothing more is claimed."""

MAX_UNWRITTEN_BYTES = 50_000_000
"""While the results that are not written yet have this many bytes, nothing more is claimed."""

SMALL_BYTES = 10_000
"""Results up to this size are not counted in bytes: their number bounds them well enough."""

HOLD_SECONDS = 0.05
"""How long a result may wait for others."""

DEFER_SECONDS = 0.25
"""How long a result that could not be written, for example for a lock, waits for the next try."""

REFUSED_SECONDS = 5.0
"""How long a result waits, at most, that the database refuses in whatever form."""

PATIENCE_SECONDS = 30.0
"""After this time a result that cannot be written is named in the log."""


class Lease:
    """Results that a thread is writing; those that it does not forget or defer go back."""

    def __init__(self, batch: CurrentBatch, results: Sequence[Result]) -> None:
        self._batch = batch
        # By claim: a companion may have written another result than the one that it was given.
        self._left = {id(result.claim): result for result in results}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        for result in self._left.values() if error else ():
            result.claim.is_in_doubt = True
        self._batch.take_back(self._left.values())

    def __contains__(self, result: Result) -> bool:
        return id(result.claim) in self._left

    @property
    def results(self) -> list[Result]:
        """The results that are not written yet, in the order in which they came."""
        return list(self._left.values())

    def forget(self, results: Iterable[Result]) -> None:
        """Drop results that are committed, or were not this worker's to write."""
        claims = [result.claim for result in results]
        for key in map(id, claims):
            del self._left[key]
        self._batch.forget(claims)

    def short_for(self, result: Result) -> float:
        """Return since how many seconds the server has been short of what writing it needs."""
        return self._batch.short_for(result)

    def defer(self, results: Iterable[Result]) -> None:
        """Keep results for later that cannot be written now, for example because of a lock."""
        self._batch.defer([self._left.pop(id(result.claim)) for result in results])

    def note_short(self, result: Result) -> None:
        """Keep a result for later for which the server is short of memory, say."""
        self._batch.note_short(result)
        self.defer([result])

    def refuse(self, result: Result, error: Exception) -> None:
        """Keep a result for later that the database refuses, also as a failure."""
        self._batch.refuse(self._left.pop(id(result.claim)), error)

    # What the server cancels

    @property
    def most(self) -> int:
        """How many results are written at once, at most."""
        return self._batch.cancelled.most

    @property
    def has_slow(self) -> bool:
        """Whether the server has cancelled writing one of the batch's results alone."""
        return bool(self._batch.cancelled)

    def is_slow(self, result: Result) -> bool:
        """Return whether the server has cancelled writing this result alone."""
        return self._batch.cancelled.seconds(result.claim) is not None

    def note_written(self) -> None:
        """Note that some were written at once."""
        self._batch.cancelled.allow_more()

    def note_cancelled(self, results: Sequence[Result]) -> None:
        """Note that the server has cancelled writing these at once; they go back."""
        self._batch.cancelled.allow_fewer(len(results))

    def cancelled_for(self, result: Result) -> float:
        """Return since how many seconds the server has cancelled writing this result alone."""
        return self._batch.cancelled.seconds(result.claim) or 0.0

    def put_off(self, result: Result, error: Exception, *, anew: bool = False) -> None:
        """Keep a result for later that the server has cancelled alone; `anew` begins to count."""
        self._batch.put_off(self._left.pop(id(result.claim)), error, anew=anew)


class CurrentBatch:
    """The claims in flight, and who writes their results. Any thread may call any method."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._lock = threading.Lock()
        self._stuck = StuckResults(patience_seconds)
        self.cancelled = CancelledWrites()
        self._claims: dict[int, Claim] = {}
        """By identity: an attempt may have two claims, for its handler and for its decision."""
        self._without_result: dict[int, Claim] = {}
        """Those of them that have no result yet. Who takes a claim out may add its result."""
        self._results: deque[Result] = deque()
        self._bytes: dict[int, int] = {}
        """Of the large results to be written, by the identity of the claim.

        Without those that are kept for a later try: one locked row must not stop all others.
        """
        self._deferred: list[tuple[float, Result]] = []
        self._first_result = 0.0
        self.is_left_to_writer = False
        """Whether a writer has been called for the results, or is writing them."""
        self._writer_is_closed = False
        self._patience_seconds = patience_seconds
        self._given_to_writer = 0.0

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        with self._lock:
            return iter(list(self._claims.values()))

    @property
    def ids(self) -> list[int]:
        """The ids of the jobs in flight, in their order."""
        return sorted(claim.id for claim in self)

    def attempts(self) -> set[tuple[int, int]]:
        """Return id and attempt of the jobs in flight."""
        return {(claim.id, claim.attempt) for claim in self}

    @property
    def unfinished(self) -> int:
        """How many claims have no result yet."""
        return len(self._without_result)

    @property
    def unwritten(self) -> int:
        """How many results are not committed yet, including those that are being written."""
        return len(self._claims) - len(self._without_result)

    @property
    def room(self) -> int:
        """How many more results may wait; while there is none, no more jobs may be claimed."""
        if self._bytes and sum(tuple(self._bytes.values())) >= MAX_UNWRITTEN_BYTES:
            return 0
        return max(0, MAX_UNWRITTEN - self.unwritten)

    @property
    def is_full(self) -> bool:
        """Whether so many results wait, or so large ones, that no more jobs may be claimed."""
        return not self.room

    @property
    def has_many(self) -> bool:
        """Whether so many results wait for the scheduler that it writes them at once."""
        return len(self._results) >= FLUSH_RESULTS and not self._is_writers

    def add(self, claims: Iterable[Claim]) -> None:
        """Add committed claims."""
        added = {id(claim): claim for claim in claims}
        with self._lock:
            self._claims |= added
            self._without_result |= added

    def deliver(self, result: Result) -> bool:
        """Add the result of a claim, unless it has one; return whether to call a writer.

        A writer is called if many results wait and none was called yet: a call takes as long as a
        small handler. A claim has two results if its handler ends while a worker that stops puts
        its job back: only the first one counts. This takes no lock, because it is done for each
        job; each of its steps is atomic.
        """
        claim = id(result.claim)
        if not self._results:
            self._first_result = steady()
        size = result.size
        try:
            # CPython lets nothing hit a thread between these: none calls anything.
            del self._without_result[claim]
            if size > SMALL_BYTES:
                self._bytes[claim] = size
            self._results += (result,)
        except KeyError:
            return False
        return len(self._results) >= FLUSH_RESULTS and not self._is_writers

    # Who writes the results

    def lease(self, *, more_come: bool = False) -> Lease:
        """Lease the first results to the scheduler, as many as are written at once.

        None if `more_come` in a moment. Also none while the result writer is writing, unless so
        many wait that the scheduler may claim no more: then it writes some beside the writer.
        """
        with self._lock:
            if self._is_writers:
                return Lease(self, self._take(FLUSH_RESULTS) if self.is_full else [])
            young = steady() < self._first_result + HOLD_SECONDS
            if more_come and young and len(self._results) < FLUSH_RESULTS:
                return Lease(self, [])
            self._take_up_deferred()
            return Lease(self, self._take(FLUSH_RESULTS))

    def lease_of(self, queue_id: int) -> Lease:
        """Lease the results of the jobs of one queue to the scheduler."""
        with self._lock:
            if self._is_writers:
                return Lease(self, [])
            self._take_up_deferred()
            results = self._take(len(self._results))
            mine = [result for result in results if result.claim.snapshot.queue.id == queue_id]
            if len(mine) < len(results):
                self._results.extend(r for r in results if r.claim.snapshot.queue.id != queue_id)
            return Lease(self, mine)

    def lease_to_writer(self) -> Lease:
        """Lease the results to the writer if there are many; else leave them to the scheduler."""
        with self._lock:
            self.is_left_to_writer = len(self._results) >= FLUSH_RESULTS
            self._given_to_writer = steady()
            return Lease(self, self._take(FLUSH_RESULTS) if self.is_left_to_writer else [])

    def hand_to_writer(self) -> None:
        """Leave the results to the writer, which has been called."""
        self._given_to_writer = steady()
        self.is_left_to_writer = True

    def leave_to_scheduler(self) -> None:
        """Leave the results to the scheduler, because the writer has failed."""
        self.is_left_to_writer = False

    def take_from_writer(self) -> None:
        """Leave no results to the writer any more, from now on."""
        self._writer_is_closed = True

    def queue_with_results(self, ids: Container[int]) -> int | None:
        """Return the id of one of these queues that has results to be written, if there is one."""
        waiting = tuple(self._results)  # a copy: threads add some meanwhile
        queues = (result.claim.snapshot.queue.id for result in waiting)
        return next((pk for pk in queues if pk in ids), None)

    @property
    def _is_writers(self) -> bool:
        """Not any more if the writer takes too long, for example because a receiver hangs in it."""
        is_left = self.is_left_to_writer and not self._writer_is_closed
        return is_left and steady() < self._given_to_writer + self._patience_seconds

    def _take(self, number: int) -> list[Result]:
        return [self._results.popleft() for _ in range(min(number, len(self._results)))]

    def _take_up_deferred(self) -> None:
        """Put the results that are to be tried again before the others."""
        if self._deferred:
            now = steady()
            due = [result for again, result in self._deferred if again <= now]
            self._results.extendleft(due)
            self._deferred = [(again, result) for again, result in self._deferred if again > now]

    # What a lease does

    def forget(self, claims: Sequence[Claim]) -> None:
        """Forget claims whose results are committed, or whose jobs another worker owns."""
        with self._lock:
            for key in map(id, claims):
                self._claims.pop(key, None)
                self._bytes.pop(key, None)
            ended = self._stuck.end(claims)
            self.cancelled.end(claims)
        for claim, seconds in ended:
            events.warning("job_unlocked", row=claim, seconds=round(seconds))

    def defer(self, results: Iterable[Result]) -> None:
        """Keep results for a later try."""
        kept = list(results)
        with self._lock:
            self._keep(kept, DEFER_SECONDS)
            lasting = self._stuck.wait([result.claim for result in kept])
        for claim, seconds in lasting:
            events.warning(
                "job_locked",
                "another transaction has locked the row, or a table; the result is kept until that "
                "transaction ends, and then written",
                row=claim,
                seconds=round(seconds),
            )

    def _keep(self, results: Iterable[Result], seconds: float) -> None:
        again = steady() + seconds
        for result in results:
            self._deferred.append((again, result))
            self._bytes.pop(id(result.claim), None)

    def refuse(self, result: Result, error: Exception) -> None:
        """Keep a result for a later try; it is tried ever more seldom."""
        claim = result.claim
        with self._lock:
            is_new = self._stuck.refuse(claim)
            pause = max(DEFER_SECONDS, self._stuck.seconds(claim))
            self._keep([result], min(pause, REFUSED_SECONDS))
        if is_new:
            sentence = "the result is kept, and tried again later"
            _, shown = refusal(result, error)
            events.error("result_not_written", sentence, row=claim, exception=shown)

    def put_off(self, result: Result, error: Exception, *, anew: bool) -> None:
        """Keep a result for a later try that the server has cancelled alone; ever more seldom."""
        claim = result.claim
        with self._lock:
            is_new = self.cancelled.seconds(claim) is None
            pause = max(DEFER_SECONDS, self.cancelled.note(claim, anew=anew))
            self._keep([result], min(pause, REFUSED_SECONDS))
        if is_new:
            sentence = (
                f"the server cancels the statement that writes it; if it still does so in "
                f"{CANCELLED_SECONDS:.0f} s, the attempt fails"
            )
            _, shown = refusal(result, error)
            events.warning("result_cancelled", sentence, row=claim, exception=shown)

    def note_short(self, result: Result) -> None:
        """Note that the server is short of what writing a result needs."""
        with self._lock:
            self._stuck.note_short(result.claim)

    def short_for(self, result: Result) -> float:
        """Return since how many seconds that has been so; 0 if it is not."""
        with self._lock:
            return self._stuck.short_for(result.claim)

    def take_back(self, results: Iterable[Result]) -> None:
        """Keep unwritten results for the next try, before those that came since."""
        left = list(results)
        if left:
            with self._lock:
                self._results.extendleft(reversed(left))
                self.is_left_to_writer = False

    # What ends without a result

    def discard(self, claims: Iterable[Claim]) -> None:
        """Forget claims that never started and are not this worker's any more."""
        dropped = list(claims)
        with self._lock:
            for claim in dropped:
                self._without_result.pop(id(claim), None)
                self._claims.pop(id(claim), None)


class CancelledWrites:
    """What the server has cancelled, by a `statement_timeout` for example.

    Fewer results are written at once then, a little more with each success, and a result that was
    cancelled alone is written alone. So a pass loses the time of one statement, and one result that
    takes too long holds no other.
    """

    def __init__(self) -> None:
        self.most = FLUSH_RESULTS
        """How many results are written at once, at most."""
        self._since: dict[int, float] = {}
        """Since when each claim's result was cancelled alone, by the identity of the claim."""

    def __len__(self) -> int:
        return len(self._since)

    def allow_fewer(self, cancelled: int) -> None:
        """Note that writing so many at once was cancelled."""
        self.most = max(1, cancelled // 2)

    def allow_more(self) -> None:
        """Note that some were written."""
        if self.most < FLUSH_RESULTS:  # as hardly ever
            self.most = min(FLUSH_RESULTS, self.most + 1 + self.most // 8)

    def note(self, claim: Claim, *, anew: bool = False) -> float:
        """Note that the result of a claim was cancelled alone; return since how many seconds."""
        now = steady()
        if anew:
            self._since[id(claim)] = now
        return now - self._since.setdefault(id(claim), now)

    def seconds(self, claim: Claim) -> float | None:
        """Return since when that has been so; None if it was never cancelled alone."""
        since = self._since.get(id(claim))
        return None if since is None else steady() - since

    def end(self, claims: Iterable[Claim]) -> None:
        """Forget claims whose results are written."""
        if self._since:  # as hardly ever
            for claim in claims:
                self._since.pop(id(claim), None)


class StuckResults:
    """Knows which results cannot be written because their rows stay locked, or are refused.

    Each job is to be named once when a lock lasts, and once when it is over; short locks are not.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._locks = LastingLocks(patience_seconds)
        self._refused: set[int] = set()
        self._short: dict[int, float] = {}

    def wait(self, claims: Sequence[Claim]) -> list[tuple[Claim, float]]:
        """Note that results could not be written; return the claims to be named, since when."""
        now = steady()
        waited = [(claim, self._locks.wait(claim.id, now)) for claim in claims]
        return [known for known in waited if self._locks.is_to_be_named(known[0].id, now)]

    def refuse(self, claim: Claim) -> bool:
        """Note that the database refuses the result of a claim, in whatever form.

        Return whether that is new.
        """
        self._locks.wait(claim.id, steady())
        is_new = claim.id not in self._refused
        self._refused.add(claim.id)
        return is_new

    def note_short(self, claim: Claim) -> None:
        """Note that the server is short of what writing the result of a claim needs."""
        self._short.setdefault(claim.id, steady())

    def short_for(self, claim: Claim) -> float:
        """Return since how many seconds that has been so; 0 if it is not. Locks do not count."""
        now = steady()
        return now - self._short.get(claim.id, now)

    def seconds(self, claim: Claim) -> float:
        """Return how long ago the result of a claim could not be written for the first time."""
        return self._locks.seconds(claim.id, steady())

    def end(self, claims: Sequence[Claim]) -> list[tuple[Claim, float]]:
        """Note that they were written, or are not this worker's to write any more.

        Return those that were named, and for how long they waited.
        """
        if not self._locks:  # as nearly always
            return []
        self._refused.difference_update(claim.id for claim in claims)
        for claim in claims if self._short else ():
            self._short.pop(claim.id, None)
        waited = [(claim, self._locks.end(claim.id, steady())) for claim in claims]
        return [known for known in waited if known[1]]
