"""While the database, or a broker, is away: how long it has been, and when to try again."""

from __future__ import annotations

import random
from typing import Any

from hipq_django import events
from hipq_django.database.clock import steady

FIRST_SECONDS = 0.1
LAST_SECONDS = 5.0
"""The pause after the first failure in a row, and the longest: soon back after a restart."""


class BackOff:
    """Waits that double from 0.1 to 5 seconds; each is randomly up to a half shorter."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def next_seconds(self) -> float:
        """Return how long to wait this time."""
        self._seconds = min(max(self._seconds * 2, FIRST_SECONDS), LAST_SECONDS)
        return self._seconds * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self._seconds = 0.0


class Outage:
    """Whether the database is away, as one process sees it.

    Counts from the last time that the database answered; logs one line when it is over. `kind` and
    `name` identify the process in the log.
    """

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name
        self.is_on = False
        self._well = steady()

    @property
    def seconds(self) -> float:
        """How long the database has been away; 0 if it is there."""
        return steady() - self._well if self.is_on else 0.0

    def begin(self) -> None:
        """Note that the database failed."""
        self.is_on = True

    def end(self) -> None:
        """Note that the database answers."""
        if self.is_on:
            fields: dict[str, Any] = {
                self._kind: self._name,
                "away_seconds": round(self.seconds, 1),
            }
            events.warning("database_back", "the database is back", **fields)
        self.is_on = False
        self._well = steady()


class Standstill:
    """For how long nothing has changed, as one process sees it."""

    def __init__(self) -> None:
        self._last: object = None
        self._since = steady()

    def note(self, state: object) -> None:
        """Note how things are now."""
        if state != self._last:
            self._last, self._since = state, steady()

    @property
    def seconds(self) -> float:
        """How long it has been like this; 0 if nothing was noted."""
        return 0.0 if self._last is None else steady() - self._since
