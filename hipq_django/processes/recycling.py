"""When to replace a worker process, so that leaked memory ends with it."""

from __future__ import annotations

import os
import random
from math import inf
from pathlib import Path

from hipq_django.database.clock import steady
from hipq_django.processes.options import WorkerOptions

SPREAD = 0.1
"""Children of a supervisor end randomly up to this share before the bounds, not all at once."""

LOOK_SECONDS = 1.0
"""How often the memory is looked at."""

MEGABYTE = 1_000_000

_STATM = Path("/proc/self/statm")


class Recycling:
    """Says when a worker is to end, so that a new one takes its place."""

    def __init__(self, options: WorkerOptions) -> None:
        spread = random.uniform(0, SPREAD) if options.parent else 0.0  # noqa: S311 - no secret
        self._max_jobs = _less(options.max_jobs, spread)
        self._max_memory = _less(options.max_memory, spread)
        self._looked = -inf
        self._memory = 0.0

    def reason(self, started: int) -> str:
        """Return why the worker is to end after it has started so many jobs; "" while it is not.

        It starts at least one: otherwise a bound that is too low would restart it for ever.
        """
        if not started:
            return ""
        if started >= self._max_jobs:
            return f"it has started {started} jobs"
        if self._max_memory < inf and self._resident_megabytes() > self._max_memory:
            return f"it has {self._memory:.0f} MB of memory"
        return ""

    def _resident_megabytes(self) -> float:
        now = steady()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._memory = now, resident_megabytes()
        return self._memory


def _less(bound: float | None, spread: float) -> float:
    return inf if bound is None else bound * (1 - spread)


def can_measure_memory() -> bool:
    """Whether the system says how much memory a process uses, as Linux does."""
    return _STATM.exists()


def resident_megabytes() -> float:
    """Return the resident memory of this process, without swapped pages."""
    pages = int(_STATM.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
