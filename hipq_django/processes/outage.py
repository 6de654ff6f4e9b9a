"""While the database, or a broker, is away: when to try again."""

from __future__ import annotations

import random

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
