"""W5d: how long due jobs of one queue wait while all jobs of another one fail."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import hipq_django as hipq
from benchmarks.measuring.handlers import stamps, tally
from benchmarks.measuring.measurements import WrongResultError, await_count, percentiles
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the delays of jobs that are enqueued while others fail, all in one worker."""
    runner.enqueue_new(
        hipq.NewJob("declined", {"number": number}, queue="storm")
        for number in range(sizes["failing"])
    )
    analyze()
    before, committed = tally().total(), {}
    with running(runner.worker()) as workers:
        await_count(workers, before + 1)
        for number in range(sizes["jobs"]):
            hipq.enqueue("work", {"kind": "stamp", "number": number}, queue="calm")
            committed[number] = time.monotonic_ns()
            time.sleep(sizes["pause_seconds"])
        if tally().total() >= before + sizes["failing"] + sizes["jobs"]:
            raise WrongResultError("the storm was over before all jobs were enqueued")
        await_count(workers, before + sizes["failing"] + sizes["jobs"])
        memory = workers.peak_memory_mb()
    delays = [(stamps().moment(number) - at) / 1e6 for number, at in committed.items()]
    yield from percentiles([max(delay, 0.0) for delay in delays]).items()
    if memory is not None:
        yield "storm_memory_mb", memory
