"""What is known of a cell when it is over: the ledger, and what the database says beside it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils.functional import cached_property

from chaos.fleet import Stopped
from chaos.orders import Order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.ledger import Event


@dataclass(frozen=True)
class JobRow:
    """A job as the database has it at the end."""

    key: str
    state: str
    outcome: str
    attempt: int
    result: Any = None


@dataclass(frozen=True)
class TimeoutRow:
    """An attempt that timed out; `ended` is in the ledger's time."""

    key: str
    attempt: int
    ended: float


@dataclass(frozen=True)
class AnswerRow:
    """An answer as the database has it at the end."""

    key: str
    message: str
    kind: str
    status: str
    payload: Any = None


@dataclass(frozen=True)
class Crew:
    """The workers at the end, before they were told to stop, and how they stopped."""

    expected: int
    beating: int
    """Rows of workers whose heartbeat is fresh."""
    lost: int = 0
    """Rows of workers that others gave up during the cell."""
    pids: tuple[int, ...] = ()
    stopped: Stopped = field(default_factory=Stopped)


@dataclass(frozen=True)
class Bounds:
    """What a cell's fault excuses, and what it does not."""

    may_lose: bool = False
    """Whether the fault kills workers or makes them look dead: `WorkerLost` is right then."""
    longest_wait: float | None = None
    """How long a job of the unlimited queue may wait for its start, in seconds."""
    longest_idle: float | None = None
    """How long any one of the workers may start nothing, in seconds."""
    recovery: float | None = 20.0
    """How long after the fault the first job may start, in seconds."""


@dataclass(frozen=True)
class Evidence:
    """All that the checks may use."""

    events: Sequence[Event]
    jobs: Sequence[JobRow] = ()
    timeouts: Sequence[TimeoutRow] = ()
    answers: Sequence[AnswerRow] = ()
    receipts: frozenset[str] = frozenset()
    """The keys of jobs whose handlers wrote a row of the project's own."""
    samples: int = 0
    """How often the sampler looked at the limits."""
    above: Sequence[str] = ()
    """What the sampler saw above a limit."""
    crew: Crew = field(default_factory=lambda: Crew(0, 0))
    logged: Sequence[str] = ()
    """Unexpected exceptions in the workers' logs."""
    bounds: Bounds = field(default_factory=Bounds)

    @cached_property
    def by_key(self) -> dict[str, list[Event]]:
        """The events of each job, in their order."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.key:
                found[event.key].append(event)
        return found

    @cached_property
    def orders(self) -> dict[str, Order]:
        """What was to be enqueued under each key, whether or not that was acknowledged."""
        return {event.key: Order(**event.more["order"]) for event in self.named("planned")}

    @cached_property
    def row_of(self) -> dict[str, JobRow]:
        """The row of each job."""
        return {row.key: row for row in self.jobs}

    @cached_property
    def turns(self) -> list[Event]:
        """When the queue that is paused now and then was paused and resumed."""
        return list(self.named("paused", "resuming"))

    @cached_property
    def given_up(self) -> dict[int, list[tuple[float, float]]]:
        """From when to when each worker's process, by its id, was no worker."""
        found: dict[int, list[tuple[float, float]]] = defaultdict(list)
        since: dict[int, float] = {}
        for event in self.named("given up", "back"):
            pid = event.more["worker"]
            if event.what == "given up":
                since[pid] = event.at
            else:
                found[pid].append((since[pid], event.at))
        return found

    @cached_property
    def killed(self) -> set[int]:
        """The ids of the workers' processes that were killed."""
        return {event.more["worker"] for event in self.named("killed")}

    @cached_property
    def begun(self) -> dict[tuple[str, int], float]:
        """When the handler of each attempt began first."""
        found: dict[tuple[str, int], float] = {}
        for event in self.named("begin"):
            found.setdefault((event.key, event.attempt), event.at)
        return found

    def named(self, *names: str) -> Iterator[Event]:
        """Return the events with these names."""
        return (event for event in self.events if event.what in names)

    def of(self, key: str, *names: str) -> list[Event]:
        """Return one job's events with these names."""
        return [event for event in self.by_key.get(key, ()) if event.what in names]
