"""The thread of a worker that gets shares of a limit from other shards."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection

from django.db import connections

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.clock import steady
from hipq_django.processes.own_threads import OwnThread, log_failure
from hipq_django.sharding.map import map_of
from hipq_django.sharing.pulling import pull

LEAST_SECONDS, MOST_SECONDS = 0.5, 1.0
"""How long a queue waits at least for its next pull: for a random time, so that workers differ."""


class Puller(OwnThread):
    """Pulls for the queues whose first due job needs a larger share of their limit.

    A shard that does not answer delays nothing but this thread. `wake` is called with the name of a
    queue that has got something.
    """

    def __init__(self, config: InstanceSettings, wake: Callable[[str], None]) -> None:
        super().__init__("puller", config.database)
        self._config = config
        self._wake = wake
        self._hungry: set[str] = set()
        self._in_vain: set[str] = set()
        """The queues whose last pull has got nothing."""
        self._next: dict[str, float] = {}
        """When queues may pull again, by their names."""
        self._noted = threading.Event()

    def open(self) -> None:
        """Start the thread, if there are other shards."""
        if self._config.is_sharded:
            super().open()

    def note(self, queues: Collection[str]) -> None:
        """Note that these queues are hungry; from any thread."""
        if not self._hungry.issuperset(queues):
            self._hungry.update(queues)
            self._noted.set()

    @property
    def waits(self) -> bool:
        """Whether a queue is hungry that has not pulled in vain."""
        return bool(self._hungry - self._in_vain)

    def close(self) -> None:
        """Tell the thread to stop."""
        super().close()
        self._noted.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._noted.wait(self._pause())
            self._noted.clear()
            for queue in [name for name in tuple(self._hungry) if self._wait_of(name) <= 0]:
                self._pull(queue)
                self._hungry.discard(queue)  # if it still is, the next probe says so
                pause = random.uniform(LEAST_SECONDS, MOST_SECONDS)  # noqa: S311 - no secret
                self._next[queue] = steady() + pause

    def _pause(self) -> float | None:
        """Return how long to wait for the next queue; None until one is noted."""
        return min((max(0.0, self._wait_of(name)) for name in tuple(self._hungry)), default=None)

    def _wait_of(self, queue: str) -> float:
        return self._next.get(queue, 0.0) - steady()

    def _pull(self, queue: str) -> None:
        got = None
        try:
            shards = map_of(self._config).shards
            own = next(shard for shard in shards if shard.alias == self.using)
            got = pull(self._config, own.number, queue, [shard.alias for shard in shards])
        except Exception as error:
            log_failure("pull_failed", error, queue=queue)
            connections.close_all()
        if got:
            self._in_vain.discard(queue)
            self._wake(queue)
        else:
            self._in_vain.add(queue)
