"""The soak: a steady load for a long time, with pruning, and what becomes of speed and size."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from django.core.management import call_command
from django.db import connection, connections

from benchmarks.measuring.handlers import tally
from benchmarks.measuring.measurements import WrongResultError
from benchmarks.measuring.workers import running
from hipq_django.models import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures
    from benchmarks.measuring.workers import Workers

BATCH = 100
BACKLOG = 2_000
KEPT_SECONDS = 60
PRUNE_SECONDS = 10
DAY_SECONDS = 86_400
SIZES = """
SELECT pg_table_size('hipq_job'), pg_indexes_size('hipq_job'), n_dead_tup
FROM pg_stat_user_tables WHERE relname = 'hipq_job'
"""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Find the peak rate, then enqueue at half of it for `seconds`; print a sample now and then.

    From `held_from` on, a transaction is held open for `held_seconds`.
    """
    with running(runner.worker()) as workers, _pruning():
        peak = _peak_rate(runner, workers, sizes["peak_seconds"])
        yield "peak_jobs_per_second", peak
        yield "rate", peak / 2
        _Soak(runner, workers, sizes, peak / 2).run()


def _peak_rate(runner: HipqRunner, workers: Workers, seconds: float) -> float:
    """Return what one client and one worker keep up together: the backlog is kept short."""
    began, first, enqueued = time.monotonic(), tally().total(), tally().total()
    while time.monotonic() - began < seconds:
        workers.check()
        if enqueued - tally().total() < BACKLOG:
            runner.enqueue_bulk("noop", range(BATCH))
            enqueued += BATCH
        else:
            time.sleep(0.001)
    return (tally().total() - first) / (time.monotonic() - began)


class _Soak:
    """A load of `rate` jobs per second."""

    def __init__(
        self, runner: HipqRunner, workers: Workers, sizes: dict[str, Any], rate: float
    ) -> None:
        self._runner, self._workers, self._sizes, self._rate = runner, workers, sizes, rate
        self._held = (sizes["held_from"], sizes["held_from"] + sizes["held_seconds"])
        self._holder = _Holder()

    def run(self) -> None:
        """Enqueue in small batches on time, and take the samples."""
        began, enqueued, sampled = time.monotonic(), 0, 0.0
        counted = tally().total()
        while (second := time.monotonic() - began) < self._sizes["seconds"]:
            self._workers.check()
            self._holder.hold(self._held[0] <= second < self._held[1])
            if second - sampled >= self._sizes["sample_seconds"]:
                done = tally().total()
                self._print(second, (done - counted) / (second - sampled))
                sampled, counted = second, done
            if enqueued < second * self._rate:
                self._runner.enqueue_bulk("noop", range(BATCH))
                enqueued += BATCH
            else:
                time.sleep(0.005)
        self._holder.hold(False)
        if not sampled:
            raise WrongResultError("the soak was shorter than one sample")

    def _print(self, second: float, jobs_per_second: float) -> None:
        with connection.cursor() as cursor:
            cursor.execute(SIZES)
            table, indexes, dead = cursor.fetchone()
        sample = {
            "second": round(second, 1),
            "jobs_per_second": round(jobs_per_second, 1),
            "table_bytes": table,
            "index_bytes": indexes,
            "dead_rows": dead,
            "waiting": Job.objects.waiting().count(),
            "held": self._holder.is_holding,
        }
        print(json.dumps({"sample": sample}), flush=True)


class _Holder:
    """A session that holds a transaction open: what is deleted meanwhile cannot be reused."""

    def __init__(self) -> None:
        self._session = connection.copy()

    @property
    def is_holding(self) -> bool:
        """Whether the transaction is open."""
        return self._session.connection is not None

    def hold(self, wanted: bool) -> None:
        """Begin the transaction, or end it."""
        if wanted and not self.is_holding:
            self._session.set_autocommit(False)
            with self._session.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                cursor.execute("SELECT count(*) FROM hipq_queue")
        elif self.is_holding and not wanted:
            self._session.close()


@contextmanager
def _pruning() -> Iterator[None]:
    """Delete finished jobs after a minute, as an operator's timer would."""
    over = threading.Event()
    thread = threading.Thread(target=_prune_until, args=[over])
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _prune_until(over: threading.Event) -> None:
    while not over.wait(PRUNE_SECONDS):
        call_command("hipq_prune", days=KEPT_SECONDS / DAY_SECONDS, stdout=StringIO())
    connections.close_all()
