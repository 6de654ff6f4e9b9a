"""Whether a database has rows of a rare kind, which is asked after each of very many commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from django.db import transaction

ABSENT_SECONDS = 1.0
"""How long nothing is asked after there were no such rows: the database may be far away.

Measured by the benchmark W3d, see docs/benchmarks.md.
"""


class Presence:
    """Asks `look(using)`, but after a no, or an error, not again for a second.

    Rows that another process adds are therefore seen late, and a sweep has to find what was missed.
    """

    def __init__(self, look: Callable[[str], bool]) -> None:
        self._look = look
        self._absent_until: dict[str, float] = {}

    def __call__(self, using: str) -> bool:
        if not self.is_possible(using):
            return False
        found = False
        try:
            found = self._look(using)
        finally:
            if not found:
                self._absent_until[using] = time.monotonic() + ABSENT_SECONDS
        return found

    def is_possible(self, using: str) -> bool:
        """Return whether a call would look."""
        return time.monotonic() >= self._absent_until.get(using, 0.0)

    def note(self, using: str) -> None:
        """Let this process see the rows that it adds at once, and again after the commit."""
        self._forget(using)
        transaction.on_commit(partial(self._forget, using), using=using)

    def _forget(self, using: str) -> None:
        self._absent_until.pop(using, None)
