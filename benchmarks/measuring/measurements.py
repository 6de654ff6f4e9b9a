"""The measurements that are the same for all systems.

Each takes a runner and its sizes, checks that all jobs were done, and yields figures.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.handlers import folder, stamps, tally
from benchmarks.measuring.postgres import analyze, sessions
from benchmarks.measuring.transactions import count_transactions
from benchmarks.measuring.workers import Workers, cpu_seconds, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.runner import Figures, Runner

POLL_SECONDS = 0.002
PATIENCE_SECONDS = 120
SETTLED_SECONDS = 2
"""After its last job a worker may look closely for a while."""
Sizes = dict[str, Any]


class WrongResultError(Exception):
    """The system did not do what was asked, so its speed means nothing."""


def enqueue(runner: Runner, sizes: Sizes) -> Figures:
    """W1: one client enqueues one job after the other."""
    runner.enqueue_each("noop", range(sizes["warm_up"]))
    began = time.perf_counter()
    runner.enqueue_each("noop", range(sizes["jobs"]))
    yield "jobs_per_second", sizes["jobs"] / (time.perf_counter() - began)
    check_equal("jobs enqueued", runner.unfinished(), sizes["jobs"] + sizes["warm_up"])


def enqueue_bulk(runner: Runner, sizes: Sizes) -> Figures:
    """W2: one client enqueues many jobs at once."""
    runner.enqueue_bulk("noop", range(sizes["warm_up"]))
    began = time.perf_counter()
    runner.enqueue_bulk("noop", range(sizes["jobs"]))
    yield "jobs_per_second", sizes["jobs"] / (time.perf_counter() - began)
    check_equal("jobs enqueued", runner.unfinished(), sizes["jobs"] + sizes["warm_up"])


def drain(runner: Runner, sizes: Sizes) -> Figures:
    """W3, W4, W7, W12: workers do jobs that do nothing and were all there before."""
    runner.enqueue_bulk("noop", range(sizes["jobs"]))
    runner.disconnect()
    analyze()
    before = count_transactions()
    drain = Drain.expected(sizes["jobs"], sizes["workers"])
    with running(runner.worker(), drain.workers, runner.worker_environment()) as workers:
        yield "jobs_per_second", drain.jobs_per_second(runner, workers)
        memory = workers.peak_memory_mb()
    runner.disconnect()
    after = count_transactions()
    if memory is not None:
        yield "memory_mb", memory
    if before is not None and after is not None:
        yield "transactions_per_job", (after - before) / sizes["jobs"]


def storm(runner: Runner, sizes: Sizes) -> Figures:
    """W3b, W3c: one worker does jobs that succeed, and then as many that fail, in the same minute.

    What counts is how often a handler runs in a second: a job may be tried several times.
    """
    succeeding, _ = _drained(runner, "noop", sizes["jobs"], 1)
    failing, memory = _drained(runner, sizes["kind"], sizes["jobs"], sizes["tries"])
    yield "jobs_per_second", succeeding
    yield "attempts_per_second", failing
    yield "share", failing / succeeding
    if memory is not None:
        yield "storm_memory_mb", memory


def _drained(runner: Runner, kind: str, jobs: int, tries: int) -> tuple[float, float | None]:
    """Return the rate and the peak memory of a worker of its own."""
    runner.enqueue_bulk(kind, range(jobs))
    analyze()
    drain = Drain.expected(jobs * tries, 1)
    with running(runner.worker(), 1, runner.worker_environment()) as workers:
        rate = drain.jobs_per_second(runner, workers)
        return rate, workers.peak_memory_mb()


def network(runner: Runner, sizes: Sizes) -> Figures:
    """W4b: workers do jobs that wait 20 ms for an answer of another process."""
    with slow_server():
        for concurrency in sizes["concurrency"]:
            jobs = sizes["jobs_each"] * concurrency
            runner.enqueue_bulk("wait", range(jobs))
            analyze()
            command = runner.worker(concurrency)
            drain = Drain.expected(jobs, sizes["workers"])
            with running(command, drain.workers, runner.worker_environment()) as workers:
                rate = drain.jobs_per_second(runner, workers)
                yield f"jobs_per_second_at_{concurrency}", rate


def latency(runner: Runner, sizes: Sizes) -> Figures:
    """W5: from the enqueue's commit to the handler's first line, in an idle worker.

    Then what it costs that the worker is there while nothing happens.
    """
    with running(runner.idle_worker(), 1, runner.worker_environment()) as workers:
        runner.enqueue("stamp", 0)
        await_count(workers, 1)
        committed: dict[int, int] = {}
        for number in range(1, sizes["jobs"] + 1):
            time.sleep(sizes["pause_seconds"])
            runner.enqueue("stamp", number)
            committed[number] = time.monotonic_ns()
        await_count(workers, sizes["jobs"] + 1)
        idle = _core_percent(workers, sizes["idle_seconds"])
    delays = [(stamps().moment(n) - at) / 1e6 for n, at in committed.items()]
    # A worker may begin before the enqueuing process is given the processor again.
    yield from percentiles([max(delay, 0.0) for delay in delays]).items()
    yield "idle_core_percent", idle


def _core_percent(workers: Workers, seconds: float) -> float:
    """Return what workers and their sessions in PostgreSQL use of a core."""
    time.sleep(SETTLED_SECONDS)
    pids = [*workers.pids(), *sessions()]
    before, began = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pids) - before) / (time.monotonic() - began)


MEASUREMENTS = {
    "bulk": enqueue_bulk,
    "drain": drain,
    "enqueue": enqueue,
    "latency": latency,
    "network": network,
    "storm": storm,
}


@dataclass(frozen=True)
class Drain:
    """Jobs that are to be done by workers; `before` and `known` were counted before."""

    jobs: int
    workers: int
    before: int
    known: int

    @classmethod
    def expected(cls, jobs: int, workers: int) -> Drain:
        """Return the drain that begins now."""
        return cls(jobs, workers, tally().total(), tally().workers())

    def jobs_per_second(self, runner: Runner, workers: Workers) -> float:
        """Wait until all jobs are recorded as done, and return the rate.

        It is taken from the moment when all workers have begun, because the time they need to
        start is another figure; from the first worker's beginning where it was alone to the end.
        """
        end = self.before + self.jobs
        first = await_count(workers, self.before + 1)
        began = time.perf_counter()
        while not self._all_have_begun() and tally().total() < end:
            workers.check()
            time.sleep(POLL_SECONDS)
        if tally().total() < end:
            first, began = tally().total(), time.perf_counter()
        await_count(workers, end)
        await_finished(runner, workers)
        rate = (end - first) / (time.perf_counter() - began)
        check_equal("jobs handled", tally().total(), end)
        if first == end:
            raise WrongResultError(f"all {self.jobs} jobs were done at once: too few to measure")
        return rate

    def _all_have_begun(self) -> bool:
        return tally().workers() - self.known >= self.workers


def await_count(workers: Workers, number: int) -> int:
    """Wait until this many jobs were counted; raise where nothing happens any more."""
    seen, until = 0, time.monotonic() + PATIENCE_SECONDS
    while (total := tally().total()) < number:
        workers.check()
        if total > seen:
            seen, until = total, time.monotonic() + PATIENCE_SECONDS
        if time.monotonic() > until:
            raise WrongResultError(f"{total} of {number} jobs were handled, and no more come")
        time.sleep(POLL_SECONDS)
    return total


def await_finished(runner: Runner, workers: Workers) -> None:
    """Wait until all jobs are recorded as done."""
    until = time.monotonic() + PATIENCE_SECONDS
    while left := runner.unfinished():
        workers.check()
        if time.monotonic() > until:
            raise WrongResultError(f"{left} jobs were handled, but are not recorded as done")
        time.sleep(POLL_SECONDS)


@contextmanager
def slow_server() -> Iterator[None]:
    """Run the server that takes 20 ms to answer."""
    command = [sys.executable, "-m", "benchmarks.measuring.slow_server"]
    with running(command) as server:
        while not (folder() / "port").exists():
            server.check()
            time.sleep(POLL_SECONDS)
        yield


def percentiles(values: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile, by the nearest rank."""
    ranked = sorted(values)
    return {f"p{p}_ms": ranked[-(-len(ranked) * p // 100) - 1] for p in (50, 99)}


def check_equal(what: str, found: int, expected: int) -> None:
    """Raise `WrongResultError` unless both are the same."""
    if found != expected:
        raise WrongResultError(f"{what}: {found} instead of {expected}")
