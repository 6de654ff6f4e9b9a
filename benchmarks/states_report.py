"""What the comparison of two states says: medians, ratios, and whether speed was lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from string import Template
from typing import TYPE_CHECKING

from benchmarks.report import Spread, ratio, values
from benchmarks.workloads import WORKLOADS, Figure, Workload, by_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.results import Results

BEFORE, NOW = "before", "now"
"""The names of the two states, where results have those of systems."""
COMPARED = ("W1", "W2", "W3", "W4", "W5", "W8", "W9", "W10", "W11", "W12")
"""Without W6, a run of which fills a table for minutes: ask for it with `--only`."""
BOUND = 0.97
FOLDER = "benchmarks"
"""Where the comparisons are, beside the page of the benchmark."""
NOT_JUDGED = {
    "bare_creates_per_second": "Django's own insert",
    "idle_core_percent": "has a target of its own",
    "most": "no speed",
    "most_running_1": "no speed",
    "most_running_2": "no speed",
    "p99_ms": "has a target of its own",
}
"""Figures that are shown without the bound, and why."""
TURNS = {"W1": 4, "W5": 2, "W8": 2, "W9": 3}
"""How often a round runs a workload that is short, and varies much from run to run."""
PAGE = """# $now beside $before

Measured on $date by `python -m benchmarks.states $before`.$quick

Before: $before, “$before_subject”. Now: $now, “$now_subject”.

Both ran $times ($often), in turn, each with its own runner and its own code, in databases of the
same server; what was first in one turn was second in the next. Figures are medians. The ratio is
the median of the rounds' ratios: above 1 this state is the better one, and below $bound it has lost
speed. In brackets are the bounds between which it lies with 95 % certainty by these rounds.

$table

$troubles

$machine
"""
Known = dict[str, tuple[str, ...]]
"""The measurement of each workload that a state has, followed by the names of its sizes."""


@dataclass(frozen=True)
class Change:
    """One figure in both states; `ratio` is above 1 where this state is the better one."""

    workload: Workload
    figure: Figure
    before: Spread
    now: Spread
    ratios: tuple[float, ...]
    ratio: float

    @property
    def is_enough(self) -> bool | None:
        """Whether no speed was lost; None for a figure that is not judged."""
        return None if self.figure.name in NOT_JUDGED else self.ratio >= BOUND


def runs_of(workloads: Sequence[Workload], rounds: int) -> Iterator[tuple[int, Workload, str]]:
    """Return the runs in their order, with their numbers; who is first is second the next time."""
    for number in range(rounds):
        for workload in workloads:
            turns = TURNS.get(workload.id, 1)
            for turn in range(number * turns, (number + 1) * turns):
                for state in (BEFORE, NOW) if turn % 2 == 0 else (NOW, BEFORE):
                    yield turn, workload, state


def lacking(workload: Workload, known: Known) -> str:
    """Return why a state that measures what is `known` cannot run a workload, '' if it can."""
    if workload.id not in known:
        return "the state before does not have it."
    if known[workload.id] != (workload.measurement, *sorted(workload.sizes)):
        return "the state before measures it in another way."
    return ""


def changes(found: Results) -> list[Change]:
    """Return all figures that both states yielded."""
    made = (
        _change(found, workload, figure)
        for workload in WORKLOADS
        if workload.id in found.figures
        for figure in workload.figures
    )
    return [change for change in made if change]


def _change(found: Results, workload: Workload, figure: Figure) -> Change | None:
    before, now = (values(found, workload.id, state, figure.name) for state in (BEFORE, NOW))
    better, worse = (now, before) if figure.more_is_better else (before, now)
    middle = ratio(better, worse)
    if middle is None:
        return None
    pairs = zip(better, worse, strict=False)
    ratios = tuple(one / other for one, other in pairs if one and other)
    return Change(workload, figure, Spread(tuple(before)), Spread(tuple(now)), ratios, middle)


def median_bounds(ratios: Sequence[float], certainty: float = 0.95) -> tuple[float, float]:
    """Return the bounds between which the true median lies with this certainty.

    By the sign test, which asks nothing of the spread: each ratio is above the true median or below
    it, as a coin falls. Of too few ratios the lowest and the highest are returned.
    """
    ranked, number = sorted(ratios), len(ratios)
    rank, beyond = 0, 1 / 2**number
    while rank < (number - 1) // 2 and 2 * beyond <= 1 - certainty:
        rank += 1
        beyond += comb(number, rank) / 2**number
    rank = max(rank, 1)
    return ranked[rank - 1], ranked[number - rank]


def is_as_fast(found: Results) -> bool:
    """Return whether everything was measured and nothing is slower than the bound allows."""
    judged = [change.is_enough for change in changes(found) if change.is_enough is not None]
    return bool(judged) and all(judged) and not found.errors


def page(found: Results) -> str:
    """Return the page of a comparison."""
    before, now = found.versions[BEFORE], found.versions[NOW]
    place = {**found.machine, **found.servers}
    return Template(PAGE).substitute(
        before=before["commit"],
        before_subject=before["subject"],
        now=now["commit"],
        now_subject=now["subject"],
        date=found.date,
        quick=" **With `--quick`: the figures only show that everything runs.**"
        if found.quick
        else "",
        times="once" if found.rounds == 1 else f"{found.rounds} times",
        often=", ".join(f"{name} {turns} times as often" for name, turns in TURNS.items()),
        bound=BOUND,
        table=_table(found),
        troubles=_bullets(_troubles(found)) or "Everything was measured.",
        machine=_bullets(f"{name}: {value}" for name, value in place.items()),
    )


def _table(found: Results) -> str:
    lines: Iterable[str] = (
        f"| {change.workload.id}: {change.workload.title} | {_titled(change.figure)} "
        f"| {_number(change, change.before)} | {_number(change, change.now)} "
        f"| {change.ratio:.3f} ({_bounds(change.ratios)}) "
        f"| {_judged(change)} |"
        for change in changes(found)
    )
    return "\n".join(
        [f"| | Figure | Before | Now | Ratio | ≥ {BOUND} |", "|---|---|---|---|---|---|", *lines]
    )


def _bounds(ratios: Sequence[float]) -> str:
    low, high = median_bounds(ratios)
    return f"{low:.2f} to {high:.2f}"


def _judged(change: Change) -> str:
    answer = {True: "yes", False: "**no**", None: ""}[change.is_enough]
    return answer or NOT_JUDGED[change.figure.name]


def _titled(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}" if figure.unit else figure.title


def _number(change: Change, spread: Spread) -> str:
    return f"{spread.median:,.{change.figure.decimals}f}"


def _troubles(found: Results) -> Iterator[str]:
    yield from _incomparable(found)
    for said, word in ((found.notes, "is left out"), (found.errors, "failed")):
        for workload, by_state in said.items():
            for state, texts in by_state.items():
                where = f" ({state})" if word == "failed" else ""
                yield f"{by_id(workload).id} {word}{where}: {' '.join(texts)}"


def _incomparable(found: Results) -> Iterator[str]:
    """Name the figures that were not measured in both states, or are 0 in one."""
    compared = {(change.workload.id, change.figure.name) for change in changes(found)}
    for workload in WORKLOADS:
        for figure in workload.figures if workload.id in found.figures else ():
            if (workload.id, figure.name) not in compared:
                yield f"{workload.id}, {_titled(figure)}: not measured in both states."


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"* {text}" for text in texts)
