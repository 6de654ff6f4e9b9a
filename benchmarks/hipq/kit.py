"""W25: what tests of projects wait for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import transaction

import hipq_django as hipq
from benchmarks.hipq.noop.jobs import plain
from hipq_django.models import Job

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield what the test kit takes for a job, and for days in which a schedule fires each hour."""
    # The kit counts time by this process's clock, so it is loaded for this measurement only.
    from hipq_django import testing

    with transaction.atomic():  # as in a TestCase
        runner.enqueue_bulk("plain", range(sizes["warm_up"]))
        testing.run_due_jobs()
        runner.enqueue_bulk("plain", range(sizes["jobs"]))
        began = time.perf_counter()
        testing.run_due_jobs()
        yield "job_ms", 1000 * (time.perf_counter() - began) / sizes["jobs"]
        hipq.schedule(
            "hourly",
            hipq.NewJob(plain.name, {"kind": "plain", "number": 0}),
            hipq.Cron("0 * * * *"),
        )
        before = Job.objects.count()
        began = time.perf_counter()
        testing.run_for(days=sizes["days"])
        yield "days_seconds", time.perf_counter() - began
        yield "fired", Job.objects.count() - before
