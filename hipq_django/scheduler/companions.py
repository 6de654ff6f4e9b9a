"""Companions: what else is read and written with the jobs of some job types.

An app that stands above the queue, such as flows, keeps rows of its own beside the jobs: they are
read for a whole batch of claims, and written in the transaction that ends the attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.clock import steady
from hipq_django.database.isolation import Isolation
from hipq_django.domain.pauses import pause_after
from hipq_django.domain.states import Phase
from hipq_django.extensions import companions
from hipq_django.models import Worker
from hipq_django.transitions.values import Claim, Persisted, Result

PART = 250
"""How many claims are prepared before their threads may start."""

LONGEST_PAUSE = 4.0
"""How long a step of a companion that raises is left out."""

STIR_SHARE = 0.02
"""The share of a busy worker's time for asking companions what is due, while nothing is.

Measured by the benchmark W18, see docs/benchmarks.md.
"""

MAX_STIR_PAUSE = 0.1
"""How many seconds it asks none of them at most, however long that took the last time."""

Persist = Callable[[Sequence[Result], Worker, datetime], Iterator[Persisted]]
"""Writes results of jobs, and yields what became of each part that it has written.

`transitions.persist`, or its slower part alone.
"""


class Companion(Protocol):
    """What is read and written beside the jobs of a kind of job types."""

    def prepare(self, claims: Sequence[Claim]) -> None:
        """Read what the claims need, which are committed; set `extra` of each.

        If this fails, `call` gets claims without `extra`.
        """

    def call(self, claim: Claim) -> Any:
        """Run the project's code in a thread; return what a handler returns.

        It sets `extra` if it is None, so that the result comes back to `write`.
        """

    def write(
        self, results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
    ) -> Iterator[Persisted]:
        """Write results by `persist`, and what belongs to them in the same transaction.

        Yield after each commit what became of the results.
        """

    def instead_of(self, result: Result, error: Exception) -> Result:
        """Return what is written of a result that cannot be written as it is."""

    def stir(self, config: InstanceSettings) -> int:
        """Enqueue jobs that have become due. Return how many rows it moved.

        It is called before a pass; a worker that is busy calls it seldom while it moves none.
        """

    def sweep(self, config: InstanceSettings) -> int:
        """Find what a crash or an operator has left; at intervals. Return how many rows moved."""


def prepared(claims: Sequence[Claim]) -> Iterator[Sequence[Claim]]:
    """Yield the claims in parts, each when the companions have read what it needs."""
    if companions().keys().isdisjoint({claim.snapshot.job_type.kind for claim in claims}):
        yield claims  # as nearly always
        return
    for start in range(0, len(claims), PART):
        part = claims[start : start + PART]
        _prepare(part)
        yield part


def _prepare(claims: Sequence[Claim]) -> None:
    """Let the companions read what claims need; what fails here is tried again by `call`.

    Decisions are left out: no companion is called for them.
    """
    calls = [claim for claim in claims if claim.phase is not Phase.DECISION]
    for kind, companion in companions().items():
        own = [claim for claim in calls if claim.snapshot.job_type.kind == kind]
        try:
            if own:
                companion.prepare(own)
        except Exception as error:  # the claims are committed: their threads go on
            events.warning("prepare_failed", "each thread reads for itself", exception=error)


class _Stirs:
    """When a busy worker asks the companions what is due; a process has one worker."""

    def __init__(self) -> None:
        self.written = 0
        """How often it has written something of theirs, which may have made something due."""
        self._seen = 0
        self._next = 0.0

    def are_due(self) -> bool:
        """Whether to ask now."""
        return self.written != self._seen or steady() >= self._next

    def record(self, written: int, began: float, *, has_found: bool) -> None:
        """Note that it has asked, when it had written so often."""
        self._seen, self._next = written, 0.0
        if not has_found:
            ended = steady()
            self._next = ended + pause_after(ended - began, STIR_SHARE, most=MAX_STIR_PAUSE)


_stirs = _Stirs()


_put_first: set[str] = set()
"""The queues, by their names, in which companions have enqueued jobs since the last pass."""


def put_first(queues: Iterable[str]) -> None:
    """Let the worker of this process serve queues, by their names, without a probe.

    A companion has just enqueued jobs there, which are committed.
    """
    _put_first.update(queues)


def take_first() -> set[str]:
    """Return the queues that were put first since the last time."""
    return {_put_first.pop() for _ in range(len(_put_first))}


def stir(config: InstanceSettings, left_alone: Steps, *, is_busy: bool = False) -> int:
    """Let the companions enqueue what is due; ask seldom if the worker is busy and nothing was."""
    if is_busy and not _stirs.are_due():
        return 0
    written, began = _stirs.written, steady()
    steps = [(kind, each.stir) for kind, each in companions().items()]
    moved = sum([_alone(kind, step, config, left_alone) for kind, step in steps])
    _stirs.record(written, began, has_found=moved > 0)
    return moved


def sweep(config: InstanceSettings, left_alone: Steps) -> int:
    """Let the companions find what was left."""
    steps = [(kind, each.sweep) for kind, each in companions().items()]
    return sum([_alone(kind, step, config, left_alone) for kind, step in steps])


Steps = Isolation[tuple[str, str]]
"""The steps that a worker leaves alone: each by the kind of the job types, and its name."""


def steps_left_alone() -> Steps:
    """Return the memory of a worker in which no step has failed."""
    return Isolation(
        "companion", lambda key: {"step": key[1], "kind": key[0]}, fault_pause=LONGEST_PAUSE
    )


def _alone(
    kind: str,
    step: Callable[[InstanceSettings], int],
    config: InstanceSettings,
    left_alone: Steps,
) -> int:
    """Do a step of a companion; one that raises is left alone for a while, and stops nothing."""
    key = (kind, step.__name__)
    if key in left_alone.ids:
        return 0
    moved = 0
    with left_alone.apart(key):
        moved = step(config)
        left_alone.forget([key])
    return moved


def write(
    results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
) -> Iterator[Persisted]:
    """Let the companions write results that have something beside them."""
    for kind, companion in companions().items():
        part = [result for result in results if result.claim.snapshot.job_type.kind == kind]
        if part:
            yield from companion.write(part, worker, now, persist)
    _stirs.written += 1


def instead_of(result: Result, error: Exception) -> Result | None:
    """Return what the companion of a result writes instead; None if it has none."""
    if result.claim.extra is None:
        return None
    return companions()[result.claim.snapshot.job_type.kind].instead_of(result, error)
