"""W18: what plain jobs lose where the app of flows is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.measurements import WrongResultError
from benchmarks.runs import parsed

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

FIGURES = {
    "enqueue": ("jobs_per_second", "enqueue"),
    "drain": ("jobs_per_second", "drain"),
    "throttled": ("jobs_per_second_1", "throttled"),
}
"""By measurement: its figure, and what its ratio is called."""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the ratios of the rates with and without the app, in turns within the same minutes.

    Each goes first as often as the other: what runs second finds the dead rows of the first.
    """
    rates: dict[tuple[str, bool], list[float]] = defaultdict(list)
    runner.disconnect()  # or each drain would wait until this session ends, too
    for turn in range(sizes["turns"]):
        for measurement, (figure, name) in FIGURES.items():
            for has_flows in (turn % 2 == 0, turn % 2 == 1):
                found = _figures(measurement, sizes[measurement], has_flows)
                rates[name, has_flows].append(found[figure])
                runner.finish_all()
                runner.disconnect()
    for _, name in FIGURES.values():
        yield f"share_{name}", median(rates[name, True]) / median(rates[name, False])


def _figures(measurement: str, sizes: dict[str, Any], has_flows: bool) -> dict[str, float]:
    """Return the figures of a measurement, which is made by processes of its own."""
    variables = {name: value for name, value in os.environ.items() if name != "BENCH_FLOWS"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.hipq", measurement, json.dumps(sizes)],
        env=variables | ({"BENCH_FLOWS": "yes"} if has_flows else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WrongResultError(f"{measurement}: {done.stderr[-500:]}")
    return parsed(done.stdout).figures
