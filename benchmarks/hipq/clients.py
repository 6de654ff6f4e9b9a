"""W5b: many clients enqueue at the same time, with and without waking the workers."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections
from django.test import override_settings

import hipq_django as hipq
from benchmarks.measuring.measurements import POLL_SECONDS, check_equal
from benchmarks.measuring.runner import note
from benchmarks.measuring.workers import running
from hipq_django.conf import INSTANCE_DEFAULTS
from hipq_django.models import Job, Worker

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

FORK = multiprocessing.get_context("fork")
"""The clients are copies of this process: Django is loaded once."""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield commits per second of all clients together, with wake-ups and without, and the ratio.

    A worker of another queue runs, so that somebody listens but nobody takes the jobs away. Both
    are measured in short turns, because a machine is not equally fast all the time.
    """
    if "NOTIFY" not in INSTANCE_DEFAULTS:
        note("This version has no NOTIFY setting: only the rate without wake-ups was measured.")
        yield "commits_per_second", sum(_turns(runner, sizes, None)) / sizes["turns"]
        return
    rates: dict[str, list[float]] = {"no": [], "yes": []}
    for _ in range(sizes["turns"]):
        for notify, found in rates.items():
            found.extend(_turns(runner, {**sizes, "turns": 1}, notify))
    without, with_notify = (sum(found) / sizes["turns"] for found in rates.values())
    yield "commits_per_second", without
    yield "commits_per_second_with_notify", with_notify
    yield "ratio", with_notify / without


def _turns(runner: HipqRunner, sizes: dict[str, Any], notify: str | None) -> list[float]:
    environment = {} if notify is None else {"BENCH_NOTIFY": notify}
    changed = {} if notify is None else {"NOTIFY": notify == "yes"}
    setting = {"default": {**settings.HIPQ["default"], **changed}}
    with (
        override_settings(HIPQ=setting),
        running(runner.worker(None, "idle"), 1, environment) as worker,
    ):
        while not Worker.objects.filter(state=Worker.State.RUNNING).exists():
            worker.check()
            time.sleep(POLL_SECONDS)
        return [_commits_per_second(sizes) for _ in range(sizes["turns"])]


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
