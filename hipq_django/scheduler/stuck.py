"""Says which results cannot be written because somebody keeps their rows locked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hipq_django.database.clock import steady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hipq_django.transitions.values import Claim

logger = logging.getLogger("hipq_django")


class StuckResults:
    """Names each job once when it lasts, and once when it is over; a moment is nothing special."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._since: dict[int, float] = {}
        self._named: set[int] = set()

    def wait(self, claim: Claim) -> None:
        """Note that the result of a claim could not be written."""
        seconds = steady() - self._since.setdefault(claim.id, steady())
        if seconds >= self._patience_seconds and claim.id not in self._named:
            self._named.add(claim.id)
            logger.warning(
                "job=%s type=%s attempt=%s event=locked seconds=%.0f: another transaction has "
                "locked the row; the result is kept and written when that transaction ends",
                claim.id, claim.snapshot.job_type.name, claim.attempt, seconds,
            )  # fmt: skip

    def seconds(self, claim: Claim) -> float:
        """Return how long ago the result of a claim could not be written for the first time."""
        now = steady()
        return now - self._since.get(claim.id, now)

    def end(self, claims: Sequence[Claim]) -> None:
        """Note that they were written, or are not this worker's to write any more."""
        if self._since:
            for claim in claims:
                self._end(claim)

    def _end(self, claim: Claim) -> None:
        since = self._since.pop(claim.id, steady())
        if claim.id in self._named:
            self._named.discard(claim.id)
            logger.warning(
                "job=%s attempt=%s event=unlocked seconds=%.0f",
                claim.id, claim.attempt, steady() - since,
            )  # fmt: skip
