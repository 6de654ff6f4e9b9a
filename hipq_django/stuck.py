"""Says which results cannot be written because somebody keeps their rows locked."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hipq_django.moves import Persisted
    from hipq_django.results import Claim

logger = logging.getLogger("hipq_django")


class StuckResults:
    """Names each job once when it lasts, and once when it is over; a moment is nothing special."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._named: set[int] = set()

    def note(self, persisted: Persisted, patience_seconds: float) -> None:
        """Note what was written and what could not be."""
        now = time.monotonic()
        for result in persisted.locked:
            self._wait(result.claim, now, patience_seconds)
        if self._since:
            for result in (*persisted.written, *persisted.lost):
                self._end(result.claim, now)

    def _wait(self, claim: Claim, now: float, patience_seconds: float) -> None:
        seconds = now - self._since.setdefault(claim.id, now)
        if seconds > patience_seconds and claim.id not in self._named:
            self._named.add(claim.id)
            logger.warning(
                "job=%s type=%s attempt=%s event=locked seconds=%.0f: another transaction has "
                "locked the row; the result is kept and written when that transaction ends",
                claim.id, claim.kept.job_type.name, claim.attempt, seconds,
            )  # fmt: skip

    def _end(self, claim: Claim, now: float) -> None:
        since = self._since.pop(claim.id, now)
        if claim.id in self._named:
            self._named.discard(claim.id)
            logger.warning(
                "job=%s attempt=%s event=unlocked seconds=%.0f",
                claim.id,
                claim.attempt,
                now - since,
            )
