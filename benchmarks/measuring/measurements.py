"""The measurements that are the same for all systems.

Each takes a runner and its sizes, checks that all jobs were done, and yields figures.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.handlers import folder, stamps, tally
from benchmarks.measuring.postgres import analyze, sessions
from benchmarks.measuring.tally import Stamps
from benchmarks.measuring.transactions import count_transactions
from benchmarks.measuring.workers import Workers, cpu_seconds, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.runner import Figures, Runner

POLL_SECONDS = 0.002
PATIENCE_SECONDS = 120
SETTLED_SECONDS = 2
"""After its last job a worker may look closely for a while."""
STEPS = 3
"""How many steps a pipeline has."""
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
    """W3b, W3c: one worker does jobs that fail; jobs that succeed come half before, half after.

    Many a machine is twice as fast in one minute as in the next. What counts is how often a handler
    runs in a second: a job may be tried several times.
    """
    half = sizes["jobs"] // 2
    before, _ = drained(runner, "noop", half, 1)
    failing, memory = drained(runner, sizes["kind"], sizes["jobs"], sizes["tries"])
    after, _ = drained(runner, "noop", half, 1)
    succeeding = mean((before, after))
    yield "jobs_per_second", succeeding
    yield "attempts_per_second", failing
    yield "share", failing / succeeding
    if memory is not None:
        yield "storm_memory_mb", memory


def drained(runner: Runner, kind: str, jobs: int, tries: int) -> tuple[float, float | None]:
    """Return the rate and the peak memory of a worker of its own."""
    runner.enqueue_bulk(kind, range(jobs))
    analyze()
    drain = Drain.expected(jobs * tries, 1)
    with running(runner.worker(), 1, runner.worker_environment()) as workers:
        rate = drain.jobs_per_second(runner, workers)
        return rate, workers.peak_memory_mb()


def drained_beside(runner: Runner, kind: str, other: str, jobs: int) -> tuple[float, float]:
    """Return the rates of two kinds of jobs.

    Each is drained first and last, because what is drained later finds the dead rows of the others.
    """
    rates: dict[str, list[float]] = {kind: [], other: []}
    for drained_now in (other, kind, kind, other):
        rates[drained_now].append(drained(runner, drained_now, jobs, 1)[0])
    return mean(rates[kind]), mean(rates[other])


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
        idle = core_percent(workers, sizes["idle_seconds"])
    delays = [(stamps().moment(n) - at) / 1e6 for n, at in committed.items()]
    # A worker may begin before the enqueuing process is given the processor again.
    yield from percentiles([max(delay, 0.0) for delay in delays]).items()
    yield "idle_core_percent", idle


def core_percent(workers: Workers, seconds: float) -> float:
    """Return what workers and their sessions in PostgreSQL use of a core."""
    time.sleep(SETTLED_SECONDS)
    pids = [*workers.pids(), *sessions()]
    before, began = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(pids) - before) / (time.monotonic() - began)


def ticks(runner: Runner, sizes: Sizes) -> Figures:
    """W21: from each second to the first line of the handler of the job that is due then."""
    runner.schedule_ticks()
    with running(runner.ticking_worker(), 1, runner.worker_environment()) as workers:
        await_count(workers, 1)
        first = int(time.time()) + 1
        wall_before_monotonic = time.time_ns() - time.monotonic_ns()
        await_count(workers, tally().total() + sizes["seconds"] + 1)
    due = range(first, first + sizes["seconds"])
    began = [(_next_moment(second) + wall_before_monotonic) / 1e9 for second in due]
    yield from percentiles([1000 * (at - n) for n, at in zip(due, began, strict=True)]).items()


def _next_moment(second: int) -> int:
    """Return when the job of a second began; where there was none, that of the next one."""
    numbers = (n % Stamps.NUMBERS for n in range(second, second + PATIENCE_SECONDS))
    return next(filter(None, map(stamps().moment, numbers)))


def schedules(runner: Runner, sizes: Sizes) -> Figures:
    """W22: how fast schedules that are due at the same second become jobs."""
    for workers in sizes["workers"]:
        due = int(time.time()) + sizes["peer_start_seconds"]
        runner.schedule_many(sizes["peer_schedules"], due)
        runner.disconnect()
        analyze()
        command, environment = runner.scheduling_worker(), runner.worker_environment()
        with running(command, workers, environment) as processes:
            last = await_made(runner, processes, sizes["peer_schedules"], due)
            await_finished(runner, processes)
        yield f"schedules_per_second_{workers}", sizes["peer_schedules"] / (last - due)


def await_made(runner: Runner, workers: Workers, number: int, due: int) -> float:
    """Wait until so many jobs were made of schedules; return when the last one was."""
    until = time.monotonic() + 2 * PATIENCE_SECONDS
    while (found := runner.made_from_schedules(due))[0] < number:
        workers.check()
        if time.monotonic() > until:
            raise WrongResultError(f"{found[0]} of {number} schedules were fired")
        time.sleep(0.05)
    check_equal("jobs made", found[0], number)
    return found[1]


def django_tasks(runner: Runner, sizes: Sizes) -> Figures:
    """W24: one worker drains tasks of `django.tasks`, then one client enqueues some."""
    rate, _ = drained(runner, "noop", sizes["drained"], 1)
    yield "drain_per_second", rate
    jobs = sizes["turns"] * sizes["jobs"]
    began = time.perf_counter()
    runner.enqueue_each("noop", range(jobs))
    yield "enqueues_per_second", jobs / (time.perf_counter() - began)


def chains(runner: Runner, sizes: Sizes) -> Figures:
    """W23: in an idle worker, from the beginning of a step of a chain to that of the next."""
    with running(runner.idle_worker(), 1, runner.worker_environment()) as workers:
        runner.start_chain(sizes["steps"])
        await_count(workers, sizes["steps"])
        await_finished(runner, workers)
    yield "step_p50_ms", step_ms(sizes["steps"])


def step_ms(steps: int) -> float:
    """Return the median of what lies between two steps that follow each other."""
    moments = [stamps().moment(number) for number in range(steps)]
    return median(after - before for before, after in pairwise(moments)) / 1e6


def messages(runner: Runner, sizes: Sizes) -> Figures:
    """W13, for systems in which each message is a pipeline of its own."""
    yield "messages_per_second", _pipelines_per_second(runner, sizes["messages"], 1)


def pipelines(runner: Runner, sizes: Sizes) -> Figures:
    """W14: many times three steps, one after the other."""
    for workers in sizes["workers"]:
        rate = _pipelines_per_second(runner, sizes["pipelines"], workers)
        yield f"pipelines_per_second_{workers}", rate
        yield f"steps_per_second_{workers}", STEPS * rate


def _pipelines_per_second(runner: Runner, number: int, workers: int) -> float:
    runner.start_pipelines(range(number))
    runner.disconnect()
    analyze()
    drain = Drain.expected(STEPS * number, workers)
    with running(runner.worker(), drain.workers, runner.worker_environment()) as processes:
        return drain.jobs_per_second(runner, processes) / STEPS


MEASUREMENTS = {
    "bulk": enqueue_bulk,
    "chains": chains,
    "django_tasks": django_tasks,
    "drain": drain,
    "enqueue": enqueue,
    "flow_messages": messages,
    "flow_pipelines": pipelines,
    "latency": latency,
    "network": network,
    "schedules": schedules,
    "storm": storm,
    "ticks": ticks,
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
