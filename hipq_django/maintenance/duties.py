"""What a worker does now and then for its whole instance, each duty for itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import Error, connections

from hipq_django import events

OFTEN_SECONDS = 1.0
SELDOM_SECONDS = 60.0
SHARE = 0.03
"""What a duty that finds nothing may take of the time: among millions of dead rows it is slow."""
WAIT_SECONDS = 0.5
MAX_DOUBLINGS = 6
"""How often the pause of a duty that fails is doubled."""


@dataclass(slots=True)
class Duty:
    """Something to be done each so many seconds; it returns how many rows it moved."""

    name: str
    seconds: float
    do: Callable[[], int]
    due: float = 0.0
    failures: int = 0


class Duties:
    """Does duties. One that fails is logged and comes again later; it keeps no other from work."""

    def __init__(self, using: str, duties: Sequence[Duty]) -> None:
        self._using = using
        self._duties = duties

    def run(self, *, all_of_it: bool, waits: bool) -> int:
        """Do the duties whose time has come, or all; return how many rows they moved.

        One that moved something may have more to do, and comes again soon. Those of a worker that
        is busy may wait a little for a moment in which it is not.
        """
        total = 0
        for duty in self._duties:
            if all_of_it or time.monotonic() >= duty.due + WAIT_SECONDS * waits:
                total += self._do(duty)
        return total

    def forget(self) -> None:
        """Do everything again at the next pass; after an error nothing is certain."""
        for duty in self._duties:
            if not duty.failures:
                duty.due = 0.0

    def _do(self, duty: Duty) -> int:
        began = time.monotonic()
        try:
            moved = duty.do()
        except Exception as error:
            if isinstance(error, Error) and not connections[self._using].is_usable():
                raise
            duty.failures += 1
            pause = duty.seconds * 2 ** min(duty.failures, MAX_DOUBLINGS)
            events.error(
                "duty_failed", "tried again later", duty=duty.name, seconds=round(pause, 1),
                exception=error,
            )  # fmt: skip
            moved = 0
        else:
            duty.failures = 0
            rest = (time.monotonic() - began) / SHARE
            pause = min(OFTEN_SECONDS, duty.seconds) if moved else max(duty.seconds, rest)
        duty.due = time.monotonic() + pause * random.uniform(0.8, 1.2)  # noqa: S311
        return moved
