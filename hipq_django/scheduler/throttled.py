"""What a scheduler remembers of queues with throttlers. Pure.

Moments are those of a clock that never goes back, in seconds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from hipq_django.scheduler.polling import MAX_SECONDS, QUICK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

SPARE_SECONDS = 0.02
"""How long a free thread may take to start a job that it is handed."""

MAX_DELAY_SECONDS = 5.0
FORGETTING = 0.9
"""The share of the longest delay that is left after each one that was shorter."""


class StartDelay:
    """How long after an admission its jobs may still start, where their starts are counted.

    The start that is counted is the latest possible one. So it is no longer than this worker's
    claims lately took to be committed, with something to spare.
    """

    def __init__(self) -> None:
        self.seconds = SPARE_SECONDS

    @property
    def span(self) -> timedelta:
        """The same for moments."""
        return timedelta(seconds=self.seconds)

    def record(self, seconds: float) -> None:
        """Note how long it took until jobs were handed to threads that were free."""
        self.seconds = max(2 * seconds + SPARE_SECONDS, self.seconds * FORGETTING)

    def too_short(self) -> None:
        """Note that a job did not start in time."""
        self.seconds = min(2 * self.seconds, MAX_DELAY_SECONDS)


SCAN_SHARE = 0.05
"""The share of a worker's time for looking through held jobs, once that was in vain."""


class HeldScans:
    """When a queue is looked through again in which throttlers hold jobs.

    Nothing tells a worker that a verdict has changed, so it asks again. What it could know of, an
    end of one of its jobs or another limit say, lets it ask at once.
    """

    def __init__(self) -> None:
        self._in_vain: dict[int, object] = {}
        self._next: dict[int, float] = {}
        self._start_most: set[int] = set()

    def gave(self, queue: int, looked_at: int, started: int) -> None:
        """Note how many jobs of a queue a scan looked at, and how many of them started."""
        if 2 * started >= looked_at > 0:
            self._start_most.add(queue)
        else:
            self._start_most.discard(queue)

    def start_most(self, queue: int) -> bool:
        """Return whether most of what the last look at the queue was for started."""
        return queue in self._start_most

    def may_begin(self, queue: int, now: float, limits: object) -> bool:
        """Return whether to look at a queue, by its id, whose row says these `limits`."""
        if self._in_vain.get(queue, limits) != limits:
            self.forget(queue)
        return now >= self._next.get(queue, 0.0)

    def had(
        self, queue: int, began: float, ended: float, limits: object, *, is_whole: bool
    ) -> None:
        """Note a scan that let nothing start; `is_whole` where it came to the end of the queue.

        It goes on without a pause until all of the queue was looked through.
        """
        if is_whole:
            self._in_vain[queue] = limits
        if queue in self._in_vain and ended - began > QUICK_SECONDS:
            self._next[queue] = ended + min((ended - began) / SCAN_SHARE, MAX_SECONDS)

    def forget_all(self, queues: Iterable[int]) -> None:
        """Do that with several, where any is waited with."""
        if self._in_vain:
            for queue in set(queues):
                self.forget(queue)

    def forget(self, queue: int) -> None:
        """Let a queue be looked through at once."""
        self._in_vain.pop(queue, None)
        self._next.pop(queue, None)
