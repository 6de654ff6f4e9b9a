"""A worker that a test moves by hand, so that it can stop between any two steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from hipq_django.database import clock
from hipq_django.models import Job, Worker
from hipq_django.scheduler.batch import BatchScheduler
from hipq_django.scheduler.current_batch import WRITER_SECONDS, CurrentBatch
from hipq_django.scheduler.executor import execute
from hipq_django.transitions.values import Claim
from tests.factories import WorkerFactory

PROBE = re.compile(r"AS first_rank|hipq_probe_queues_\w+\(")
"""How the statement is told that looks through all queues."""


class HandWorker:
    """The real scheduler; what it claims stays in `claims` until the test lets it run."""

    def __init__(
        self,
        *queues: str,
        threads: int = 1_000,
        ahead: int = 0,
        writer_seconds: float = WRITER_SECONDS,
    ) -> None:
        self.row: Worker = WorkerFactory.create(queues=list(queues))
        self.threads = threads
        self.claims: list[Claim] = []
        self._ahead = ahead
        self.batch = CurrentBatch(writer_seconds)
        self.scheduler = BatchScheduler(self.row, self)

    @classmethod
    def crashed(cls, *, threads: int = 1_000, ahead: int = 0) -> Self:
        """Return a worker that died with all due jobs in its hands."""
        worker = cls(threads=threads, ahead=ahead)
        worker.run_pass()
        worker.die()
        return worker

    def die(self) -> None:
        """Let the worker's heart have stopped long ago."""
        last_beat = clock.now(self.row.using) - self.row.silence - timedelta(seconds=1)
        Worker.objects.filter(pk=self.row.pk).update(heartbeat_time=last_beat)

    def beat(self) -> None:
        """Let the worker's heart beat."""
        Worker.objects.filter(pk=self.row.pk).update(heartbeat_time=clock.now(self.row.using))

    def run_pass(self) -> list[Job]:
        """Save what ran and claim what may start; return the claimed jobs."""
        before = len(self.claims)
        self.scheduler.run_once()
        return [claim.job for claim in self.claims[before:]]

    def execute(self) -> None:
        """Run the code of all claims in flight; the results are saved by the next pass."""
        for claim in self.claims:
            self.batch.deliver(execute(claim))
        self.claims.clear()

    def work(self) -> list[Job]:
        """Claim, run and save; return the claimed jobs."""
        claimed = self.run_pass()
        self.execute()
        self.save()
        return claimed

    def run_until_idle(self) -> None:
        """Claim, run and save until nothing is due."""
        while self.work():
            pass

    def save(self) -> None:
        """Save what ran, and claim nothing."""
        self.scheduler.persist_batch()

    # What the scheduler asks

    def free_slots(self) -> int:
        """Return how many jobs would start at once."""
        return max(self.threads - len(self.claims), 0)

    def prefetch_slots(self) -> int:
        """Return how many more may be claimed ahead of a free thread."""
        return self._ahead - max(len(self.claims) - self.threads, 0)

    def start(self, claims: Sequence[Claim]) -> None:
        """Keep the claims until the test lets them run."""
        self.claims += claims

    @property
    def backlog(self) -> int:
        """Return how many claims have not started: a test says when one does."""
        return 0

    def executing(self) -> list[Claim]:
        """Return the claims that have started."""
        return []

    def release_stale(self) -> None:
        """Keep what the test has not let run."""
