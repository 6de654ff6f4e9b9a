"""W5b: many clients enqueue at the same time, with and without waking the workers."""

from __future__ import annotations

import multiprocessing
import time
from statistics import mean
from typing import TYPE_CHECKING, Any

from django.db import connections

import hipq_django as hipq
from benchmarks.hipq.wake_ups import notify
from benchmarks.measuring.measurements import POLL_SECONDS, check_equal
from benchmarks.measuring.workers import running
from hipq_django.models import Job, Worker

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

FORK = multiprocessing.get_context("fork")
"""The clients are copies of this process: Django is loaded once."""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield commits per second of all clients together, without wake-ups and with them.

    A worker of another queue runs, so that somebody listens but nobody takes the jobs away. Both
    are measured in short turns, each first in every second one, because neither a machine nor a
    growing table is equally fast all the time.
    """
    rates: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(sizes["turns"]):
        for wanted in (turn % 2 == 1, turn % 2 == 0):
            with notify(wanted):
                rates[wanted].append(_with_a_worker(runner, sizes))
    yield "commits_per_second", mean(rates[False])
    yield "commits_per_second_with_notify", mean(rates[True])


def _with_a_worker(runner: HipqRunner, sizes: dict[str, Any]) -> float:
    with running(runner.worker(None, "idle")) as worker:
        while not Worker.objects.filter(state=Worker.State.RUNNING).exists():
            worker.check()
            time.sleep(POLL_SECONDS)
        return _commits_per_second(sizes)


def _commits_per_second(sizes: dict[str, Any]) -> float:
    before = Job.objects.count()
    connections.close_all()
    everybody = FORK.Barrier(sizes["clients"])
    totals = FORK.SimpleQueue()
    clients = [
        FORK.Process(target=_enqueue_for, args=(sizes["seconds"], everybody, totals))
        for _ in range(sizes["clients"])
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    commits: int = sum(totals.get() for _ in clients)
    check_equal("jobs enqueued", Job.objects.count() - before, commits)
    seconds: float = sizes["seconds"]
    return commits / seconds


def _enqueue_for(seconds: float, everybody: Barrier, totals: Any) -> None:
    hipq.enqueue("work", {"kind": "noop", "number": 0})
    everybody.wait()
    commits, until = 1, time.monotonic() + seconds
    while time.monotonic() < until:
        hipq.enqueue("work", {"kind": "noop", "number": 0})
        commits += 1
    totals.put(commits)
