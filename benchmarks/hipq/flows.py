"""W13 to W16: pipelines of three nodes, and a stage of jobs."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from django.db import transaction

from benchmarks.hipq.noop.flows import STEPS
from benchmarks.hipq.runner import HipqRunner
from benchmarks.measuring import measurements
from benchmarks.measuring.handlers import stamps
from benchmarks.measuring.measurements import (
    POLL_SECONDS,
    Drain,
    WrongResultError,
    await_count,
    check_equal,
    percentiles,
)
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running
from hipq_django import flow
from hipq_django.flow.models import Message, Node, Wake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring.runner import Figures

STARTED_TOGETHER = 100
"""How many pipelines are started in a transaction."""


class FlowRunner(HipqRunner):
    """Pipelines as nodes that are connected."""

    def __init__(self) -> None:
        super().__init__()
        self._firsts: list[Node] = []

    def start_pipelines(self, numbers: Sequence[int]) -> None:
        """Make pipelines of three nodes, the first time; write one message to each."""
        if not self._firsts:
            for some in _parts(numbers):
                self._firsts += [pipeline(STEPS)[0] for _ in some]
        for some in _parts(numbers):
            for number in some:
                port = self._firsts[number].inputs["message"]
                port.write({"kind": "noop", "number": number})

    def unfinished(self) -> int:
        """Count the runs that are to be made, too."""
        return super().unfinished() + Wake.objects.count()


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the numbers in parts, each in a transaction."""
    for start in range(0, len(numbers), STARTED_TOGETHER):
        with transaction.atomic():
            yield numbers[start : start + STARTED_TOGETHER]


def pipeline(steps: Sequence[str]) -> list[Node]:
    """Return new nodes that pass messages on from each to the next."""
    nodes = [flow.start(step, run=False) for step in steps]
    for before, after in pairwise(nodes):
        before.outputs["out"].connect(after.inputs["message"])
    return nodes


def measure_messages(runner: FlowRunner, sizes: dict[str, Any]) -> Figures:
    """W13: many messages through one pipeline; at the end all are there, in their order."""
    first, _, last = pipeline(STEPS)
    expected = [{"kind": "noop", "number": number} for number in range(sizes["messages"])]
    first.inputs["message"].write_many(expected)
    runner.disconnect()
    analyze()
    drain = Drain.expected(len(STEPS) * len(expected), 1)
    with running(runner.worker()) as workers:
        yield "messages_per_second", drain.jobs_per_second(runner, workers) / len(STEPS)
    came = last.outputs["out"].peek(len(expected) + 1)
    check_equal("messages at the end", len(came), len(expected))
    if came != expected:
        raise WrongResultError("the messages came in another order")


def measure_pipelines(runner: FlowRunner, sizes: dict[str, Any]) -> Figures:
    """W14: many pipelines with one message each; at the end as many have come out."""
    yield from measurements.pipelines(runner, sizes)
    came = len(sizes["workers"]) * sizes["pipelines"]
    check_equal("messages at the end", Message.objects.count(), came)


def measure_latency(runner: FlowRunner, sizes: dict[str, Any]) -> Figures:
    """W15: from the commit of a write to the first line of code, and to the third node's end."""
    first, _, last = pipeline(["bench.stamps"] * len(STEPS))
    begun, ended = [], []
    with running(runner.worker()) as workers:
        for number in range(sizes["messages"] + 1):
            time.sleep(sizes["pause_seconds"])
            stamp, reached = number * len(STEPS), len(STEPS) * (number + 1)
            first.inputs["message"].write({"kind": "stamp", "number": stamp})
            committed = time.monotonic_ns()
            await_count(workers, reached)
            while last.outputs["out"].size <= number:
                time.sleep(POLL_SECONDS / 4)
            ended.append(max(time.monotonic_ns() - committed, 0) / 1e6)
            begun.append(max(stamps().moment(stamp) - committed, 0) / 1e6)
    for name, delays in (("begun", begun[1:]), ("ended", ended[1:])):  # the first one warms up
        for percentile, value in percentiles(delays).items():
            yield f"{name}_{percentile}", value


def measure_stage(runner: FlowRunner, sizes: dict[str, Any]) -> Figures:
    """W16: a job for each of many messages; at the end all of their results lie behind them."""
    graph = flow.start(
        {
            "nodes": {"stage": {"jobs": "work", "limit": sizes["limit"]}},
            "inputs": {"message": "stage.in"},
            "outputs": {"out": "stage.out"},
        }
    )
    count = sizes["jobs"]
    graph.inputs["message"].write_many({"kind": "noop", "number": n} for n in range(count))
    runner.disconnect()
    analyze()
    drain = Drain.expected(count, 1)
    with running(runner.worker()) as workers:
        yield "jobs_per_second", drain.jobs_per_second(runner, workers)
    numbers = {end["data"]["number"] for end in graph.outputs["out"].peek(count + 1)}
    check_equal("different results", len(numbers), count)
    check_equal("results", graph.outputs["out"].size, count)
