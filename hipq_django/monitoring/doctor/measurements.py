"""The values that the rules judge. Durations are seconds; counts stop at 10,001."""

from __future__ import annotations

from collections.abc import Mapping
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
class PostgreSQL:
    """The settings of the server and of our tables; the defaults are as they should be."""

    has_autovacuum: bool = True
    tables_without_autovacuum: tuple[str, ...] = ()
    """The tables for which it is off, whatever the server's setting is."""
    invalid_indexes: tuple[str, ...] = ()
    """Names of indexes whose creation failed."""
    notices_dead_peer: bool = True
    """Whether a connection finds out in minutes that the other machine is gone."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An instance and its database at one moment."""

    instance: str
    database: str
    overview: Overview | None = None
    """None where migrations are missing: then nothing else is measured."""
    missing_migrations: tuple[str, ...] = ()
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
    held: frozenset[str] = frozenset()
    """Queues in which no overdue job could start: its type is unknown, or a throttler blocks it."""
    inbox: Inbox = Inbox()
    schedules: tuple[ScheduleState, ...] = ()
    unpruned: tuple[str, ...] = ()
    """Queues with final jobs that are a day past their retention."""
    edits: Mapping[str, str] = field(default_factory=dict)
    """In what rows differ from the setting and the code, by what they are."""
    clock_offset_seconds: float = 0
    postgresql: PostgreSQL = PostgreSQL()
