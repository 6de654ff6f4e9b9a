"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    """Jobs are not running, or the database needs a repair."""
    WARNING = "warning"
    """Jobs are slower than they could be, or soon will be."""
    NOTE = "note"
    """All is as somebody wanted it, which others should know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing; `code` is stable, the sentences are for people.

    `where` is a queue, a worker, a table or the database; `shard` is the alias of that of a sharded
    instance, None if it is about all of them.
    """

    level: Level
    code: str
    where: str
    what: str
    why: str
    what_to_do: str
    shard: str | None = None


problem = partial(Finding, Level.PROBLEM)
warning = partial(Finding, Level.WARNING)
note = partial(Finding, Level.NOTE)


def span(seconds: float) -> str:
    """Return a duration as text: '0:01:30', or '2 days, 0:00:00'."""
    return str(timedelta(seconds=round(seconds)))
