"""Whether the database is away, as one process sees it."""

from __future__ import annotations

import logging

from hipq_django.database.clock import steady

logger = logging.getLogger("hipq_django")


class Outage:
    """Counts from the last time that all was well; logs one line when it is over."""

    def __init__(self) -> None:
        self.is_on = False
        self._well = steady()

    @property
    def seconds(self) -> float:
        """How long the database has been away; nothing if it is there."""
        return steady() - self._well if self.is_on else 0.0

    def begin(self) -> None:
        """Note that the database failed."""
        self.is_on = True

    def end(self, name: str) -> None:
        """Note that all is well with the process of this name."""
        if self.is_on:
            logger.warning(
                "worker=%s event=database_back away_seconds=%.1f: the database is back",
                name, self.seconds,
            )  # fmt: skip
        self.is_on = False
        self._well = steady()
