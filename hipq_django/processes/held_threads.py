"""Threads that are lost to a worker: their attempts are over, but their handlers do not return."""

from __future__ import annotations

from math import inf

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.models import Worker
from hipq_django.processes.pool import ThreadPool
from hipq_django.processes.troubles import Troubles
from hipq_django.transitions.ownership import given_up
from hipq_django.transitions.values import Claim

LEAST_SECONDS = 60.0
"""How long all threads have to be held, at least, before the worker ends itself."""

EXIT_CODE = 5
"""Of a process that has ended itself for that."""


class HeldThreads:
    """Tells of held threads, in the log once for each job and in the worker's row.

    All else that tells of them, the admin, commands and `explain`, reads the row.
    """

    def __init__(self, name: str, using: str, pool: ThreadPool, troubles: Troubles) -> None:
        self._name = name
        self._using = using
        self._pool = pool
        self._troubles = troubles
        self._claims: list[Claim] = []
        self._all_since = inf

    def look(self) -> int:
        """Look which handlers have not returned, although their time is up and their attempt over.

        Before their time is up they may do something useful: one may have ended its job itself.
        """
        now = steady()
        late = [c for c in self._pool.executing() if 0.0 < c.started_at < now - c.snapshot.timeout]
        before, self._claims = self._claims, given_up(late, self._using)
        jobs, threads = sorted(claim.id for claim in self._claims), self._pool.threads
        self._all_since = min(self._all_since, now) if len(jobs) == threads else inf
        held = f"{len(jobs)} of {threads} threads held by jobs whose attempts are over"
        for claim in self._claims:
            if claim not in before:
                sentence = f"its attempt is over, but its handler does not return: {held}"
                events.warning("thread_held", sentence, **claim.fields, worker=self._name)
        if jobs:
            self._troubles.note(Worker.HELD, f"{held}: {', '.join(map(str, jobs))}", jobs=jobs)
        else:
            self._troubles.end(Worker.HELD)
        return 0

    def is_to_end(self) -> bool:
        """Return whether they are all its threads, for so long that none will become free."""
        if self._all_since == inf:  # as nearly always
            return False
        longest = max(claim.snapshot.timeout for claim in self._claims)
        if steady() - self._all_since < max(longest, LEAST_SECONDS):
            return False
        sentence = "no handler returns, so it ends; its supervisor is to start another"
        jobs = sorted(claim.id for claim in self._claims)
        events.error("all_threads_held", sentence, worker=self._name, jobs=jobs)
        return True
