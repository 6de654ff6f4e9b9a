"""How long to wait before something is tried again that another system must be there for."""

from __future__ import annotations

import random

FIRST_SECONDS = 0.1
LAST_SECONDS = 5.0


class BackOff:
    """Waits that double from 0.1 to 5 seconds; chance takes up to half of each away."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def next_seconds(self) -> float:
        """Return how long to wait this time."""
        self._seconds = min(max(self._seconds * 2, FIRST_SECONDS), LAST_SECONDS)
        return self._seconds * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self._seconds = 0.0
