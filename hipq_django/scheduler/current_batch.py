"""The claims that a worker has in flight, from their commit to the commit of their results.

A result always has one owner: a claim stays in the batch until its result is committed, and a
result that a writer has leased comes back unless the writer says that it is committed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Self

from hipq_django.database.clock import steady
from hipq_django.database.isolation import Isolation
from hipq_django.transitions.values import Claim, Result

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

WRITER_SECONDS = 30.0
"""After this time a writer that does not return holds no other results."""


class Lease:
    """Results that a thread is writing; those that it does not forget or defer go back."""

    def __init__(self, batch: CurrentBatch, results: Sequence[Result]) -> None:
        self._batch = batch
        # By claim: a companion may have written another result than the one that it was given.
        self._left = {id(result.claim): result for result in results}

    @property
    def isolation(self) -> Isolation[Claim]:
        """The claims whose results cannot be written at present."""
        return self._batch.isolation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def defer(self) -> None:
        """Keep the results for later whose claims the batch leaves alone at present."""
        alone = self.isolation.ids
        kept = [result for result in self._left.values() if result.claim in alone]
        self._batch.defer([self._left.pop(id(result.claim)) for result in kept])


class CurrentBatch:
    """The claims in flight, and who writes their results. Any thread may call any method."""

    def __init__(self, writer_seconds: float = WRITER_SECONDS) -> None:
        self._lock = threading.Lock()
        self.isolation: Isolation[Claim] = Isolation("persist", lambda claim: claim.log_fields)
        self._claims: dict[int, Claim] = {}
        """By identity: an attempt may have two claims, for its handler and for its decision."""
        self._without_result: dict[int, Claim] = {}
        """Those of them that have no result yet. Who takes a claim out may add its result."""
        self._results: deque[Result] = deque()
        self._bytes: dict[int, int] = {}
        """Of the large results to be written, by the identity of the claim.

        Without those that are kept for a later try: one locked row must not stop all others.
        """
        self._deferred: list[Result] = []
        self._first_result = 0.0
        self.is_left_to_writer = False
        """Whether a writer has been called for the results, or is writing them."""
        self._writer_is_closed = False
        self._writer_seconds = writer_seconds
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
        return is_left and steady() < self._given_to_writer + self._writer_seconds

    def _take(self, number: int) -> list[Result]:
        return [self._results.popleft() for _ in range(min(number, len(self._results)))]

    def _take_up_deferred(self) -> None:
        """Put the results that are to be tried again before the others."""
        if self._deferred:
            deferred, alone = self._deferred, self.isolation.ids
            self._results.extendleft(r for r in deferred if r.claim not in alone)
            self._deferred = [r for r in deferred if r.claim in alone]

    # What a lease does

    def forget(self, claims: Sequence[Claim]) -> None:
        """Forget claims whose results are committed, or whose jobs another worker owns."""
        self.isolation.forget(claims)
        with self._lock:
            for key in map(id, claims):
                self._claims.pop(key, None)
                self._bytes.pop(key, None)

    def defer(self, results: Iterable[Result]) -> None:
        """Keep results for a later try."""
        with self._lock:
            for result in results:
                self._deferred.append(result)
                self._bytes.pop(id(result.claim), None)

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
