"""W9: answers for many waiting jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from django.db import transaction

import hipq_django as hipq
from benchmarks.measuring.measurements import POLL_SECONDS, check_equal
from benchmarks.measuring.workers import Workers, running
from hipq_django.models import Job

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Bring the jobs to waiting, then answer some one by one and the others many at a time."""
    waiting, singly = sizes["waiting"], sizes["one_by_one"]
    runner.enqueue_new(
        hipq.NewJob("ask", {"number": number}, job_key=_key(number)) for number in range(waiting)
    )
    with running(runner.worker(None, "answers")) as workers:
        _await_waiting(runner, workers, waiting)
    began = time.perf_counter()
    for number in range(singly):
        hipq.complete("ask", _key(number), {"number": number})
    yield "answers_per_second", singly / (time.perf_counter() - began)
    began = time.perf_counter()
    for start in range(singly, waiting, sizes["batch"]):
        with transaction.atomic():
            for number in range(start, min(start + sizes["batch"], waiting)):
                hipq.complete("ask", _key(number), {"number": number})
    elapsed = time.perf_counter() - began
    yield "answers_per_second_in_batches", (waiting - singly) / elapsed
    check_equal("unanswered jobs", runner.unfinished(), 0)


def _key(number: int) -> str:
    return f"order-{number}"


def _await_waiting(runner: HipqRunner, workers: Workers, number: int) -> None:
    """Wait until all jobs wait for their answer; the figures begin after that."""
    while runner.mine().filter(state=Job.State.RUNNING, worker=None).count() < number:
        workers.check()
        time.sleep(POLL_SECONDS * 100)
