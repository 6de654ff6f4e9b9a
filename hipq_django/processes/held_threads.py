"""Threads that are lost to a worker: their attempts are over, but their handlers do not return."""

from __future__ import annotations

from math import inf

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.models import Worker
from hipq_django.processes.pool import ThreadPool
from hipq_django.processes.registered import Troubles
from hipq_django.transitions.ownership import given_up
from hipq_django.transitions.values import Claim

LEAST_SECONDS = 60.0
"""How long all threads have to be held, at least, before the worker ends itself."""


class HeldThreads:
    """Tells of held threads, in the log once for each job and in the worker's row.

    All else that tells of them, the admin, commands and `explain`, reads the row.
    """

    def __init__(self, name: str, using: str, pool: ThreadPool, troubles: Troubles) -> None:
        self._name, self._using, self._pool, self._troubles = name, using, pool, troubles
        self._claims: list[Claim] = []
        self._all_since = inf

    @property
    def ids(self) -> set[int]:
        """The ids of the jobs that held threads at the last look."""
        return {claim.id for claim in self._claims}

    def look(self) -> int:
        """Look which handlers have not returned, although their time is up and their attempt over.

        Before their time is up they may do something useful: one may have ended its job itself.
        """
        now, threads, before = steady(), self._pool.threads, self._claims
        late = [c for c in self._pool.executing() if 0.0 < c.started_at < now - c.snapshot.timeout]
        self._claims = given_up(late, self._using)
        held = len(self._claims)
        self._all_since = min(self._all_since, now) if held == threads else inf
        said = f"{held} of {threads} threads held by jobs whose attempts are over"
        for claim in self._claims:
            if claim not in before:
                sentence = f"its attempt is over, but its handler does not return: {said}"
                events.warning("thread_held", sentence, row=claim, worker=self._name)
        if not held:
            self._troubles.end(Worker.HELD)
            return 0
        jobs = ", ".join(str(claim.id) for claim in self._claims)
        self._troubles.note(Worker.HELD, f"{said}: {jobs}", held=held)
        return 0

    def are_all(self) -> bool:
        """Return whether they are all its threads, for so long that none will become free."""
        longest = max((claim.snapshot.timeout for claim in self._claims), default=0.0)
        return steady() - self._all_since >= max(longest, LEAST_SECONDS)
