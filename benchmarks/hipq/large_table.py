"""W6: the drain of W3 with many future and many finished rows in the table; W7b on the way."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.utils import timezone

import hipq_django as hipq
from benchmarks.measuring import measurements
from benchmarks.measuring.measurements import Drain, await_count
from benchmarks.measuring.workers import running
from hipq_django.models import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

CHUNK = 20_000
FUTURE_DAYS = 30


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Fill the table up to its sizes, where it is not full from an earlier round, and drain.

    The finished jobs are done by one worker, which is W7b.
    """
    now = timezone.now()
    waiting = Job.objects.filter(scheduled_run_time__gt=now + timedelta(days=1)).count()
    final = Job.objects.all().final().count()
    if waiting < sizes["future"] or final < sizes["final"]:
        _fill(max(sizes["final"] - final, 0), _due_now)
        if final < sizes["final"]:
            yield from _drain(runner, sizes["final"] - final)
        _fill(sizes["future"] - waiting, _due_later)
        # In production autovacuum does this in the hours in which a table grows so large.
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE hipq_job")
    runner.ignore_existing()
    yield from measurements.drain(runner, sizes)


def _fill(number: int, new: Callable[[int], hipq.NewJob]) -> None:
    for start in range(0, number, CHUNK):
        hipq.enqueue_many([new(n) for n in range(start, min(start + CHUNK, number))])


def _due_now(number: int) -> hipq.NewJob:
    return hipq.NewJob("work", {"kind": "noop", "number": number})


def _due_later(number: int) -> hipq.NewJob:
    later = timezone.now() + timedelta(days=FUTURE_DAYS, seconds=number)
    return hipq.NewJob("work", {"kind": "noop", "number": number}, scheduled_run_time=later)


def _drain(runner: HipqRunner, number: int) -> Figures:
    """Do all jobs by one worker, and yield what became of its memory meanwhile."""
    drain = Drain.expected(number, 1)
    with running(runner.worker()) as workers:
        await_count(workers, drain.before + number // 5)
        early = workers.memory_mb()
        yield "million_jobs_per_second", drain.jobs_per_second(runner, workers)
        late, peak = workers.memory_mb(), workers.peak_memory_mb()
    if early is not None and late is not None and peak is not None:
        yield "million_memory_early_mb", early
        yield "million_memory_at_end_mb", late
        yield "million_memory_mb", peak
