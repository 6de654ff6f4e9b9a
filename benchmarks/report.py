"""What the results say: medians, ratios and missed targets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.results import Results
    from benchmarks.systems import System
    from benchmarks.workloads import Figure, Workload


@dataclass(frozen=True)
class Spread:
    """The median of the rounds, and the least and greatest value."""

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of one value for each round."""
        return cls(median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Row:
    """One system's figures of a workload, in the order of the workload's figures; None: none."""

    system: System
    spreads: tuple[Spread | None, ...]
    ratio: float | None
    """How many times better ours is than this system in the first figure."""


def rows(results: Results, workload: Workload, systems: Iterable[System]) -> list[Row]:
    """Return the rows of the workload's table, the best first."""
    found = [
        (system, _spreads(results, workload, system))
        for system in systems
        if workload.id in system.workloads
    ]
    shown = [(system, spreads) for system, spreads in found if any(spreads)]
    ours = next((spreads[0] for system, spreads in shown if system.is_ours), None)
    first = workload.figures[0]
    made = [
        Row(system, spreads, None if system.is_ours else better(first, ours, spreads[0]))
        for system, spreads in shown
    ]
    return sorted(made, key=lambda row: _rank(first, row.spreads[0]))


def better(figure: Figure, ours: Spread | None, other: Spread | None) -> float | None:
    """Return how many times better ours is; None where one is not known or nothing."""
    if ours is None or other is None or not ours.median or not other.median:
        return None
    ratio = ours.median / other.median
    return ratio if figure.more_is_better else 1 / ratio


def value(results: Results, workload: str, system: str, figure: str) -> float | None:
    """Return the median of one figure, None where it was not measured."""
    values = results.figures.get(workload, {}).get(system, {}).get(figure)
    return median(values) if values else None


def _spreads(results: Results, workload: Workload, system: System) -> tuple[Spread | None, ...]:
    measured = results.figures.get(workload.taken_from or workload.id, {}).get(system.name, {})
    return tuple(
        Spread.of(measured[figure.name]) if measured.get(figure.name) else None
        for figure in workload.figures
    )


def _rank(figure: Figure, spread: Spread | None) -> tuple[bool, float]:
    if spread is None:
        return True, 0.0
    return False, -spread.median if figure.more_is_better else spread.median
