"""What hipq_django is to reach, and whether it did. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import better, rows, value
from benchmarks.workloads import by_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.results import Results
    from benchmarks.systems import System

OURS, SQLITE = "hipq_django", "hipq_django_sqlite"
LEAD_WORKLOADS = ("W1", "W2", "W3", "W4", "W4b", "W4c", "W5", "W12")
"""Where hipq_django is to be ahead of every peer."""


@dataclass(frozen=True)
class Target:
    """A number that a figure, or its ratio to another figure, is to reach."""

    text: str
    workload: str
    system: str
    figure: str
    at_least: float = 0.0
    at_most: float = float("inf")
    divided_by: str = ""
    """The workload whose figure of the same name is the measure."""

    def reached(self, results: Results) -> float | None:
        """Return what was reached, None where it was not measured."""
        found = value(results, self.workload, self.system, self.figure)
        if found is None or not self.divided_by:
            return found
        measure = value(results, self.divided_by, self.system, self.figure)
        return found / measure if measure else None

    def is_met_by(self, reached: float) -> bool:
        """Return whether this is enough."""
        return self.at_least <= reached <= self.at_most


TARGETS = (
    Target(
        "W5b: 16 clients keep at least 0.95 of their commit rate with wake-ups",
        *("W5b", OURS, "ratio"),
        at_least=0.95,
    ),
    Target(
        "W6: a large table costs at most a tenth of the rate of W3",
        *("W6", OURS, "jobs_per_second"),
        at_least=0.9,
        divided_by="W3",
    ),
    Target(
        "W11: the sum of the weights in hand is never above the limit of 10",
        *("W11", OURS, "most"),
        at_most=10.0,
    ),
    Target(
        "W12: at least 10,000 jobs per second on SQLite",
        *("W12", SQLITE, "jobs_per_second"),
        at_least=10_000.0,
    ),
)


def missed(results: Results, systems: Sequence[System]) -> list[str]:
    """Return a sentence for each target that was missed, and where peers are ahead.

    Behind a peer stands what share of its performance hipq_django has.
    """
    return [*_missed_numbers(results), *_missed_leads(results, systems)]


def unmeasured(results: Results) -> list[str]:
    """Return the targets on which these results say nothing."""
    return [target.text for target in TARGETS if target.reached(results) is None]


def _missed_numbers(results: Results) -> Iterator[str]:
    for target in TARGETS:
        reached = target.reached(results)
        if reached is not None and not target.is_met_by(reached):
            yield f"{target.text}: {reached:,.2f}."


def _missed_leads(results: Results, systems: Sequence[System]) -> Iterator[str]:
    for name in LEAD_WORKLOADS:
        workload = by_id(name)
        found = rows(results, workload, systems)
        ours = next((row for row in found if row.system.is_ours), None)
        if ours is None:
            continue
        for index, figure in enumerate(workload.figures):
            ratios = [
                (row.system.title, better(figure, ours.spreads[index], row.spreads[index]))
                for row in found
                if row.system.is_peer
            ]
            ahead = [f"{title} ({ratio:.2g})" for title, ratio in ratios if ratio and ratio < 1]
            if ahead:
                yield f"{name}, {figure.title}: behind {', '.join(ahead)}."
