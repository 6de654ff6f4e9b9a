"""W24: what `django.tasks` costs beside the queue's own face."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.hipq.noop.tasks import handle
from benchmarks.measuring.measurements import POLL_SECONDS, await_count, drained_beside
from benchmarks.measuring.workers import running
from hipq_django.models import Attempt, Job

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the rates of both faces: of a drain, then of `enqueue` in turns; and `get_result`."""
    of_tasks, of_types = drained_beside(runner, "task", "noop", sizes["drained"])
    yield "drain_per_second", of_tasks
    yield "drain_share", of_tasks / of_types
    handle.enqueue("noop", 0)
    seconds = {"jobs": 0.0, "tasks": 0.0}
    for _ in range(sizes["turns"]):
        began = time.perf_counter()
        runner.enqueue_each("noop", range(sizes["jobs"]))
        between = time.perf_counter()
        for number in range(sizes["jobs"]):
            handle.enqueue("noop", number)
        seconds["jobs"] += between - began
        seconds["tasks"] += time.perf_counter() - between
    yield "enqueues_per_second", sizes["turns"] * sizes["jobs"] / seconds["tasks"]
    yield "share", seconds["jobs"] / seconds["tasks"]
    runner.finish_all()
    yield from _results(runner, sizes["results"])


def _results(runner: HipqRunner, number: int) -> Figures:
    """Yield what `get_result` asks the database for a success and for a failure, and its time."""
    succeeded = Job.objects.filter(job_type__name=handle.module_path, outcome="succeeded")
    ids = [str(pk) for pk in succeeded.values_list("pk", flat=True)[:number]]
    failing = handle.enqueue("raise", 0)
    with running(runner.worker()) as workers:
        await_count(workers, 1)
        while not Attempt.objects.filter(job_id=int(failing.id)).exists():
            workers.check()
            time.sleep(POLL_SECONDS)
    yield "result_queries", _queries(ids[0])
    yield "failure_queries", _queries(failing.id)
    took = []
    for result_id in ids:
        began = time.perf_counter()
        handle.get_result(result_id)
        took.append(time.perf_counter() - began)
    yield "result_ms", 1000 * median(took)


def _queries(result_id: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        handle.get_result(result_id)
    return len(asked)
