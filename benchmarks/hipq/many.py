"""W10: many queues, and many keys with a limit for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hipq_django as hipq
from benchmarks.measuring.measurements import Drain
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Drain jobs of one queue, jobs spread over many, and jobs of many tenants from one queue.

    All in one run: what is compared is measured in the same minute.
    """
    jobs = range(sizes["jobs"])
    yield "jobs_per_second_one_queue", _drained(runner, [_in_queue(n, 0) for n in jobs])
    yield (
        "jobs_per_second_many_queues",
        _drained(runner, [_in_queue(n, n % sizes["queues"]) for n in jobs]),
    )
    yield (
        "jobs_per_second_many_keys",
        _drained(runner, [_of_tenant(n, n % sizes["tenants"]) for n in jobs], "tenants"),
    )


def _in_queue(number: int, queue: int) -> hipq.NewJob:
    return hipq.NewJob("work", {"kind": "noop", "number": number}, queue=f"queue_{queue}")


def _of_tenant(number: int, tenant: int) -> hipq.NewJob:
    data = {"kind": "noop", "number": number, "tenant": tenant}
    return hipq.NewJob("work", data, queue="tenants")


def _drained(runner: HipqRunner, new: list[hipq.NewJob], *queues: str) -> float:
    runner.enqueue_new(new)
    analyze()
    drain = Drain.expected(len(new), 1)
    with running(runner.worker(None, *queues)) as workers:
        return drain.jobs_per_second(runner, workers)
