"""W23: jobs that follow others."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from django.db.models import Max

import hipq_django as hipq
from benchmarks.measuring import measurements
from benchmarks.measuring.handlers import stamps
from benchmarks.measuring.measurements import await_finished
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running
from hipq_django.dependencies.unholding import unhold_after
from hipq_django.models import Job

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

LAST = 900_000
"""The number of the job that a batch calls back."""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield what a step of a chain takes, and what a batch costs and when it calls back."""
    yield from measurements.chains(runner, sizes)
    yield from _batch(runner, sizes)
    yield from _needs(sizes)


def _batch(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    def jobs() -> list[hipq.NewJob]:
        return [hipq.NewJob("work", {"kind": "noop", "number": n}) for n in range(sizes["members"])]

    began = time.perf_counter()
    hipq.enqueue_many(jobs())
    alone = time.perf_counter() - began
    runner.finish_all()
    runner.ignore_existing()
    began = time.perf_counter()
    with hipq.batch(then=hipq.NewJob("work", {"kind": "stamp", "number": LAST})) as batch:
        batch.enqueue_many(jobs())
    together = time.perf_counter() - began
    yield "members_per_second", sizes["members"] / together
    yield "share", alone / together
    analyze()
    with running(runner.worker()) as workers:
        await_finished(runner, workers)
    ended = runner.mine().filter(batch__isnull=False).aggregate(Max("update_time"))
    wall_before_monotonic = time.time_ns() - time.monotonic_ns()
    called = (stamps().moment(LAST) + wall_before_monotonic) / 1e9
    yield "callback_ms", 1000 * (called - ended["update_time__max"].timestamp())


def _needs(sizes: dict[str, Any]) -> Figures:
    """Yield what a look takes at a job that waits for many, and what its release takes."""
    many = hipq.enqueue_many(
        hipq.NewJob("work", {"kind": "noop", "number": n}) for n in range(sizes["needs"])
    )
    hipq.enqueue("work", {"kind": "noop", "number": 0}, after=many)
    analyze()
    took = []
    for _ in range(sizes["looks"]):
        began = time.perf_counter()
        unhold_after([many[0].pk], "default")
        took.append(time.perf_counter() - began)
    yield "look_ms", 1000 * median(took)
    yield "release_ms", _release_ms(sizes)


def _release_ms(sizes: dict[str, Any]) -> float:
    """Return what the end of a job takes that was the last of many that another waits for."""
    ended = list(Job.objects.filter(outcome="succeeded")[: sizes["needs"] - 1])
    took = []
    for number in range(sizes["looks"]):
        last = hipq.enqueue("work", {"kind": "noop", "number": number}, delay=3_600)
        hipq.enqueue("work", {"kind": "noop", "number": 0}, after=[*ended, last], on="final")
        began = time.perf_counter()
        hipq.cancel(last)
        took.append(time.perf_counter() - began)
    return 1000 * median(took)
