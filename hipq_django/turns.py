"""Whose turn it is among a worker's queues, so that a long backlog keeps nobody waiting."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from hipq_django.hotpath.base import Busy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hipq_django.models import Queue


class Turns:
    """The queues as the last look found them, and which of them are tried before the next one."""

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        """By their ids."""
        self._called: deque[str] = deque()
        self._left: list[Busy] = []
        self._last = 0

    def call(self, queue: str) -> None:
        """Let a queue, by its name, be tried first the next time; from any thread."""
        self._called.append(queue)

    def after_look(self, found: Sequence[Busy]) -> list[Busy]:
        """Return the queues that have something to do, first the one behind the last turn's."""
        self.queues = {busy.queue.pk: busy.queue for busy in found}
        self._left = []
        busy = [q for q in found if q.has_response or q.has_error or q.has_startable]
        return sorted(busy, key=lambda q: (q.queue.pk <= self._last, q.queue.pk))

    def take(self) -> list[Busy]:
        """Return, and forget, the queues that were called and those whose turn did not come."""
        called = {self._called.popleft() for _ in range(len(self._called))}
        left, self._left = self._left, []
        first = [
            Busy(queue, first_rank=queue.front, has_response=False, has_error=False)
            for queue in (self.queues.values() if called else [])
            if queue.name in called
        ]
        return first + [busy for busy in left if busy.queue.name not in called]

    @property
    def has_more(self) -> bool:
        """Whether there are queues to be tried before the next look."""
        return bool(self._called or self._left)

    def had(self, queue: Queue) -> None:
        """Note that a queue had its turn."""
        self._last = queue.pk

    def leave(self, queues: Sequence[Busy]) -> None:
        """Note whose turn did not come, for want of room."""
        self._left = list(queues)
