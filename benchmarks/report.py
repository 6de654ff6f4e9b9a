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
    """One value for each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return median(self.values)

    @property
    def least(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The greatest value."""
        return max(self.values)


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


def ratio(ours: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the median of the rounds' ratios; None where one is not known or nothing.

    Each is of values of the same round: from round to round the machine's speed may change.
    """
    rounds = [(our, other) for our, other in zip(ours, others, strict=False) if our and other]
    return median([our / other for our, other in rounds]) if rounds else None


def better(figure: Figure, ours: Spread | None, other: Spread | None) -> float | None:
    """Return how many times better ours is; None where one is not known or nothing."""
    if ours is None or other is None:
        return None
    if figure.more_is_better:
        return ratio(ours.values, other.values)
    return ratio(other.values, ours.values)


def values(results: Results, workload: str, system: str, figure: str) -> list[float]:
    """Return the values of one figure, none where it was not measured."""
    return results.figures.get(workload, {}).get(system, {}).get(figure, [])


def _spreads(results: Results, workload: Workload, system: System) -> tuple[Spread | None, ...]:
    measured = results.figures.get(workload.taken_from or workload.id, {}).get(system.name, {})
    return tuple(
        Spread(tuple(measured[figure.name])) if measured.get(figure.name) else None
        for figure in workload.figures
    )


def _rank(figure: Figure, spread: Spread | None) -> tuple[bool, float]:
    if spread is None:
        return True, 0.0
    return False, -spread.median if figure.more_is_better else spread.median
