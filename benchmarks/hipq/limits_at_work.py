"""W8 and W11: what a throttle limit costs, and how full a limited queue is kept."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import Sum

import hipq_django as hipq
from benchmarks.measuring.handlers import folder
from benchmarks.measuring.measurements import Drain, await_count
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running
from hipq_django.models import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

WATCH_SECONDS = 0.02
FACTORS = (1, 2, 3, 1, 2)
Span = tuple[float, float, float]
"""When a job began, when it ended, and its factor."""


def measure_drain(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """W8: drain the same jobs of factors 1 to 3 with the limit and without one."""
    for workers in sizes["workers"]:
        unlimited, _ = _drained(runner, "unlimited", {**sizes, "workers": workers})
        limited, most = _drained(runner, "throttled", {**sizes, "workers": workers})
        yield f"jobs_per_second_{workers}", limited
        yield f"unlimited_jobs_per_second_{workers}", unlimited
        yield f"most_running_{workers}", most


def _drained(runner: HipqRunner, queue: str, sizes: dict[str, Any]) -> tuple[float, float]:
    """Return the rate, and the greatest sum of factors that was seen running."""
    runner.enqueue_new(
        hipq.NewJob(
            "work",
            {"kind": "noop", "number": number},
            queue=queue,
            throttle_factor=FACTORS[number % len(FACTORS)],
        )
        for number in range(sizes["jobs"])
    )
    analyze()
    drain = Drain.expected(sizes["jobs"], sizes["workers"])
    with running(runner.worker(None, queue), drain.workers) as workers, _watched(queue) as sums:
        rate = drain.jobs_per_second(runner, workers)
    return rate, max(sums)


@contextmanager
def _watched(queue: str) -> Iterator[list[float]]:
    """Ask the database again and again for the sum of the factors that run; collect the answers.

    Each is of one moment, and no moment may show more than the limit.
    """
    sums: list[float] = []
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=[queue, sums, over])
    thread.start()
    try:
        yield sums
    finally:
        over.set()
        thread.join()


def _watch(queue: str, sums: list[float], over: threading.Event) -> None:
    running_jobs = Queue.objects.get(name=queue).jobs.running()
    while not sums or not over.wait(WATCH_SECONDS):
        sums.append(float(running_jobs.aggregate(sum=Sum("throttle_factor"))["sum"] or 0))
    connections.close_all()


def measure_share(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """W11: for which share of the time a queue with a limit and a backlog was full.

    Full means that the next job in strict order did not fit. `most` is the greatest sum of
    factors that was ever in flight; above the limit it would be an error.
    """
    notes = folder() / "spans"
    runner.enqueue_new(
        hipq.NewJob(
            "weighed",
            {"notes": str(notes), "seconds": sizes["seconds"]},
            throttle_factor=FACTORS[number % len(FACTORS)],
        )
        for number in range(sizes["jobs"])
    )
    with running(runner.worker(None, "limited"), sizes["workers"]) as workers:
        await_count(workers, sizes["jobs"])
    spans = read_spans(notes)
    limit = float(Queue.objects.get(name="limited").throttle_limit)
    yield "share", full_share(spans, limit)
    yield "most", max(load for _, _, load in loads(spans))


def read_spans(notes: Path) -> list[Span]:
    """Return what the jobs have written down."""
    lines = [line.split() for line in notes.read_text().splitlines()]
    return [(float(began), float(ended), float(factor)) for began, ended, factor in lines]


def full_share(spans: list[Span], limit: float) -> float:
    """Return the share of the time, while jobs were waiting, in which the next did not fit."""
    starts = sorted((began, factor) for began, _, factor in spans)
    full = total = 0.0
    for began, until, load in loads(spans):
        following = next((factor for start, factor in starts if start > began), None)
        if following is None:
            break
        total += until - began
        full += (until - began) * (load + following > limit)
    return full / total


def loads(spans: list[Span]) -> list[Span]:
    """Return the stretches of time between events, each with the sum of the factors in flight."""
    events = sorted([(b, f) for b, _, f in spans] + [(e, -f) for _, e, f in spans])
    load, history = 0.0, []
    for (at, change), (until, _) in pairwise(events):
        load += change
        history.append((at, until, load))
    return history
