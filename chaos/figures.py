"""The figures of a cell: how often jobs ran, how long they waited, how soon all was well. Pure."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence import Evidence

PROMPT = ("plain", "receipt", "never")
"""Types whose jobs nothing holds back."""
FULL_SHARE = 0.5
"""Throughput is back once it is this share of what it was before the first fault."""


def figures(evidence: Evidence) -> dict[str, Any]:
    """Return the figures of the report, None for what was not to be seen."""
    runs = Counter(event.key for event in evidence.named("begin"))
    full = full_seconds(evidence)
    recovery = recovery_seconds(evidence)
    return {
        "jobs": len(evidence.jobs),
        "answers": sum(1 for _ in evidence.named("answered")),
        "samples": evidence.samples,
        "faults": sum(1 for _ in evidence.named("fault")),
        "runs": sum(runs.values()),
        "most_runs": max(runs.values(), default=0),
        "again": _again(evidence),
        "longest_wait": round(max(waits(evidence), default=0.0), 2),
        "recovery": None if recovery is None else round(recovery, 2),
        "full": None if full is None else round(full, 2),
        "workers": evidence.crew.beating,
        "expected": evidence.crew.expected,
    }


def _again(evidence: Evidence) -> int:
    """Return how many jobs ran more often than their own failures explain."""
    orders = evidence.orders.items()
    return sum(len(evidence.of(key, "begin")) > order.runs for key, order in orders)


def waits(evidence: Evidence) -> Iterator[float]:
    """Return how long each job that nothing held back waited, from its commit to its start."""
    for event in evidence.named("enqueued"):
        order = evidence.orders[event.key]
        if order.job_type in PROMPT and not order.delay:
            begins = evidence.of(event.key, "begin")
            if begins:
                yield max(begins[0].at - event.at, 0.0)


def idle_seconds(pid: int, evidence: Evidence) -> float:
    """Return the longest time between two starts of a worker while there was load."""
    over = _moment(evidence, "load over")
    times = [event.at for event in evidence.named("begin") if event.pid == pid and event.at < over]
    return max((later - earlier for earlier, later in pairwise([*times, over])), default=0.0)


def recovery_seconds(evidence: Evidence) -> float | None:
    """Return the longest time from the end of a fault to the next start of a job."""
    begins = [event.at for event in evidence.named("begin")]
    longest, index = None, 0
    over = _moment(evidence, "load over")
    for calm in evidence.named("calm"):
        while index < len(begins) and begins[index] < calm.at:
            index += 1
        next_begin = begins[index] if index < len(begins) else max(over, calm.at)
        longest = max(longest or 0.0, next_begin - calm.at)
    return longest


def full_seconds(evidence: Evidence) -> float | None:
    """Return the time from the end of the last fault until throughput was back; None: never."""
    faults = [event.at for event in evidence.named("fault")]
    calm = [event.at for event in evidence.named("calm")]
    if not faults or not calm:
        return None
    begins = [event.at for event in evidence.named("begin")]
    before = sum(1 for at in begins if at < faults[0])
    rate = before / max(faults[0] - _moment(evidence, "load"), 1.0)
    last = calm[-1]
    after = [at for at in begins if at >= last]
    wanted = max(int(rate * FULL_SHARE), 1)
    for first, nth in zip(after, after[wanted - 1 :], strict=False):
        if nth - first <= 1.0:
            return first - last
    return None


def _moment(evidence: Evidence, name: str) -> float:
    return next((event.at for event in evidence.named(name)), 0.0)
