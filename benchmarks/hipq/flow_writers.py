"""W17: many writers of one port, one of which leaves its transaction open."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from benchmarks.hipq.flows import pipeline
from benchmarks.hipq.noop.flows import STEPS
from benchmarks.measuring.handlers import tally
from benchmarks.measuring.measurements import POLL_SECONDS, WrongResultError
from benchmarks.measuring.workers import running
from hipq_django import flow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.hipq.flows import FlowRunner
    from benchmarks.measuring.runner import Figures

FORK = multiprocessing.get_context("fork")
PATIENCE_SECONDS = 60


def measure(runner: FlowRunner, sizes: dict[str, Any]) -> Figures:
    """Yield what writers wait, and how many messages come out, without an open one and beside it.

    The messages of the open transaction come out when it has ended: none is lost, or overtaken by
    what its own writer wrote later.
    """
    first, *_ = pipeline(STEPS)
    with running(runner.worker()) as workers:
        plain, free = _written(runner, workers, first.pk, sizes)
        with _held_open(runner, first.pk, sizes):
            beside, waited = _written(runner, workers, first.pk, sizes)
        _await_messages(workers, 2 * sizes["writers"] + len(free) + len(waited) + 1)
    yield "wait_p99_ms", _p99(free)
    yield "wait_p99_beside_ms", _p99(waited)
    yield "wait_most_beside_ms", max(waited)
    yield "messages_per_second", plain
    yield "messages_per_second_beside", beside
    yield "share", beside / plain


def _p99(delays: list[float]) -> float:
    return sorted(delays)[len(delays) * 99 // 100]


def _written(
    runner: FlowRunner, workers: Any, node: int, sizes: dict[str, Any]
) -> tuple[float, list[float]]:
    """Let all write for some seconds; return what came through in a second, and their waits."""
    runner.disconnect()
    before, waits, number = tally().total(), FORK.Queue(), sizes["writers"]
    ready = FORK.Barrier(number + 1)
    writers = [
        FORK.Process(target=_write, args=(node, sizes, turn / number, ready, waits))
        for turn in range(number)
    ]
    for writer in writers:
        writer.start()
    ready.wait(PATIENCE_SECONDS)
    _await_messages(workers, before // len(STEPS) + number)
    began, before = time.perf_counter(), before + number * len(STEPS)
    ready.wait(PATIENCE_SECONDS)
    delays = [delay for _ in writers for delay in waits.get()]
    for writer in writers:
        writer.join()
    _await_messages(workers, before // len(STEPS) + len(delays))
    came = tally().total() - before
    return came / len(STEPS) / (time.perf_counter() - began), delays


def _write(node: int, sizes: dict[str, Any], turn: float, ready: Any, waits: Any) -> None:
    """Write in turn with the others: what they do to the processor is not what is measured."""
    port = flow.get(node).inputs["message"]
    delays: list[float] = []
    port.write({"kind": "noop", "number": 0})
    ready.wait(PATIENCE_SECONDS)  # all have their connections
    ready.wait(PATIENCE_SECONDS)  # what they have written has come through
    until = time.monotonic() + sizes["seconds"]
    time.sleep(turn * sizes["pause_seconds"])
    while time.monotonic() < until:
        began = time.perf_counter()
        port.write({"kind": "noop", "number": len(delays)})
        delays.append(1000 * (time.perf_counter() - began))
        time.sleep(sizes["pause_seconds"])
    waits.put(delays)
    connections.close_all()


@contextmanager
def _held_open(runner: FlowRunner, node: int, sizes: dict[str, Any]) -> Iterator[None]:
    """Let another process write, and commit after all others are done."""
    runner.disconnect()
    written, end = FORK.Event(), FORK.Event()
    holder = FORK.Process(target=_hold, args=(node, written, end))
    holder.start()
    written.wait(PATIENCE_SECONDS)
    yield
    end.set()
    holder.join()


def _hold(node: int, written: Any, end: Any) -> None:
    with transaction.atomic():
        flow.get(node).inputs["message"].write({"kind": "noop", "number": 0})
        written.set()
        end.wait(PATIENCE_SECONDS)
    connections.close_all()


def _await_messages(workers: Any, number: int) -> None:
    """Wait until so many messages have come through."""
    until = time.monotonic() + PATIENCE_SECONDS
    while tally().total() < number * len(STEPS):
        workers.check()
        if time.monotonic() > until:
            raise WrongResultError(f"{tally().total()} steps instead of {number * len(STEPS)}")
        time.sleep(POLL_SECONDS)
