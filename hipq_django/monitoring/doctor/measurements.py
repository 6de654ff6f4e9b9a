"""The values that the rules judge. Durations are seconds; counts stop at 10,001."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hipq_django.monitoring.overview import Overview


@dataclass(frozen=True, slots=True)
class Inbox:
    """Answers that no job has; `unmatched` and `malformed` are those of the last day."""

    early: int = 0
    oldest_early_seconds: float = 0
    ttl_seconds: float = 86_400
    unmatched: int = 0
    malformed: int = 0
    """Messages of sources that are no answers."""


SKIPS = 5
"""How many skipped due times in a row are told."""


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule that is not paused, where something may be wrong with it."""

    name: str
    late_seconds: float = 0
    """For how long a due time has not been fired."""
    skipped: int = 0
    """How many of its last due times were skipped, one after the other."""
    retired: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Tables:
    """Whether the tables are as the migrations made them."""

    missing: tuple[str, ...] = ()
    """Names of indexes and constraints."""
    invalid: tuple[str, ...] = ()
    """Names of indexes whose creation failed."""
    guard: str = "enabled"
    """The trigger that keeps final jobs as they are: 'enabled', 'disabled' or 'missing'."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A session's open transaction; `pid` is empty for one that was prepared."""

    pid: str
    seconds: float
    state: str
    application: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A session that waits for a lock, and the sessions that it waits for."""

    pid: int
    seconds: float
    blockers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableRows:
    """What PostgreSQL knows about the rows of a table and their vacuum."""

    name: str
    live: int
    dead: int
    changed: int
    """Rows that were changed since the last ANALYZE."""
    autovacuum: bool


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """What only PostgreSQL has."""

    isolation: str = "read committed"
    autovacuum: bool = True
    backends: int = 1
    """How many server processes answered one session's statements; more than 1 is a pooler."""
    transactions: tuple[Transaction, ...] = ()
    waits: tuple[Wait, ...] = ()
    tables: tuple[TableRows, ...] = ()
    storage: Mapping[str, tuple[float, float | None]] | None = None
    """Storage parameters of the job table that differ: what they should be and what they are."""
    notices_dead_peer: bool = True
    """Whether a connection finds out in minutes that the other machine is gone."""


@dataclass(frozen=True, slots=True)
class SQLite:
    """What only SQLite has."""

    journal_mode: str = "wal"
    transaction_mode: str = "IMMEDIATE"
    busy_timeout_seconds: float = 20


@dataclass(frozen=True, slots=True)
class Measured:
    """An instance and its database at one moment."""

    instance: str
    database: str
    overview: Overview | None = None
    """None where migrations are missing: then nothing else is measured."""
    missing_migrations: tuple[str, ...] = ()
    has_locked_table: bool = False
    """Whether one could not be read; then nothing but the server is measured."""
    lockers: tuple[int, ...] = ()
    """The processes that have locked tables so; 0 is a prepared transaction."""
    throttler_problems: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """Names of the sources of messages in the setting."""
    unknown_types: Mapping[str, int] = field(default_factory=dict)
    nearest_types: Mapping[str, str] = field(default_factory=dict)
    """Of unknown types: the nearest known one, if one is near."""
    """Job types without code in this project, and how many jobs of each wait."""
    past_deadline: int = 0
    """Running jobs whose deadline was more than a minute ago: any worker would have ended them."""
    undecided: int = 0
    """Jobs in error without an owner for a minute: any worker would have taken them."""
    held_back: frozenset[str] = frozenset()
    """Queues in which no overdue job could start: its type is unknown, or a throttler blocks it."""
    inbox: Inbox = Inbox()
    schedules: tuple[ScheduleState, ...] = ()
    unpruned: tuple[str, ...] = ()
    """Queues with final jobs that are a day past their retention."""
    tables: Tables = Tables()
    clock_offset_seconds: float = 0
    places_of_models: Sequence[str] = ()
    """The databases that the project's models are written to, if this is none of them."""
    postgresql: PostgreSQL | None = None
    sqlite: SQLite | None = None
