"""Looks at the database again and again, past every proxy: what runs, and against which limit."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from chaos.databases import SqliteFile
from chaos.project.limits import PER_TENANT

if TYPE_CHECKING:
    from chaos.databases import Database, Session

SAMPLE_SECONDS = 0.02
COUNT_EVERY = 10
AGAIN_SECONDS = 0.2

# Each is one statement, and so sees one moment.
LIMITED = """
SELECT q.name, q.throttle_limit, SUM(j.throttle_factor)
FROM hipq_queue q JOIN hipq_job j ON j.queue_id = q.id AND j.state = 'running'
WHERE q.throttle_limit >= 1 GROUP BY q.name, q.throttle_limit
"""
TENANTS = """
SELECT j.job_data {path} AS tenant, COUNT(*)
FROM hipq_job j JOIN hipq_queue q ON q.id = j.queue_id
WHERE q.name = 'tenants' AND j.state = 'running' GROUP BY 1
"""
LIVE = """
SELECT COUNT(*) FROM hipq_job j JOIN hipq_queue q ON q.id = j.queue_id
WHERE j.state <> 'final' AND q.name <> 'storm'
"""


@dataclass
class Samples:
    """What was seen."""

    taken: int = 0
    above: list[str] = field(default_factory=list)
    """Each time that more ran than a limit allows."""
    live: int = 0
    """Unfinished jobs of the everyday load when they were last counted."""


class Sampler:
    """A thread that samples until it is closed; while the database is away it has no samples."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tenants = TENANTS.format(
            path="->> '$.tenant'" if isinstance(database, SqliteFile) else "->> 'tenant'"
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples = Samples()

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> Samples:
        """Stop, and return what was seen."""
        self._closed.set()
        self._thread.join(AGAIN_SECONDS + 10)
        return self.samples

    def _run(self) -> None:
        while not self._closed.is_set():
            with suppress(psycopg.Error, sqlite3.Error):
                self._sample()
            self._closed.wait(AGAIN_SECONDS)

    def _sample(self) -> None:
        asked = self._database.connect()
        try:
            while not self._closed.wait(SAMPLE_SECONDS):
                self._look(asked)
        finally:
            asked.close()

    def _look(self, asked: Session) -> None:
        samples = self.samples
        for name, limit, running in asked.execute(LIMITED).fetchall():
            if float(running) > float(limit):
                samples.above.append(f"queue {name}: {running} of {limit} at {time.time():.2f}")
        for name, running in asked.execute(self._tenants).fetchall():
            if running > PER_TENANT.limit:
                samples.above.append(f"tenant {name}: {running} of {PER_TENANT.limit}")
        if samples.taken % COUNT_EVERY == 0:
            samples.live = int(asked.execute(LIVE).fetchone()[0])
        samples.taken += 1
