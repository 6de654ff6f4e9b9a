"""W20: what plain functions cost beside job types."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import hipq_django as hipq
from benchmarks.hipq.noop.jobs import plain, typed
from benchmarks.measuring.measurements import drained_beside

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the rates of `enqueue`, in turns of each, and those of a drain of each kind."""
    kinds: dict[str, Callable[[int], object]] = {
        "job_types": lambda number: hipq.enqueue("work", {"kind": "noop", "number": number}),
        "tasks": lambda number: plain.enqueue("noop", number),
        "typed_tasks": lambda number: typed.enqueue("noop", number),
    }
    seconds = dict.fromkeys(kinds, 0.0)
    for enqueue in kinds.values():
        enqueue(0)
    for turn in range(sizes["turns"]):
        for name, enqueue in kinds.items():
            began = time.perf_counter()
            for number in range(sizes["jobs"]):
                enqueue(turn * sizes["jobs"] + number)
            seconds[name] += time.perf_counter() - began
    enqueued = sizes["turns"] * sizes["jobs"]
    for name, took in seconds.items():
        yield f"{name}_per_second", enqueued / took
    yield "share", seconds["job_types"] / seconds["tasks"]
    yield "typed_share", seconds["job_types"] / seconds["typed_tasks"]
    runner.finish_all()
    of_tasks, of_types = drained_beside(runner, "plain", "noop", sizes["drained"])
    yield "drain_per_second", of_tasks
    yield "drain_share", of_tasks / of_types
