"""The page docs/crash-tests.md, made from the results."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from chaos.cells import CELLS, by_name
from chaos.checks import RULES
from chaos.paths import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chaos.results import Outcome, Results

TEMPLATE = Path(__file__).with_name("page.md")
NONE = "–"  # noqa: RUF001 - a dash in a table
SHOWN_CHARS = 160


def publish(results: Results, folder: Path) -> Path:
    """Write the page into `folder` and return its path."""
    path = folder / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(results))
    return path


def page(results: Results) -> str:
    """Return the text of the page."""
    return Template(TEMPLATE.read_text()).substitute(
        summary=_summary(results),
        seconds=f"{results.fault_seconds:.0f}",
        seed=results.seed,
        wrong=_wrong(results),
        rules="\n".join(f"* **{rule.title}**: {rule.meaning}." for rule in RULES),
        cells="\n".join(f"* **{cell.title}** (`{cell.name}`): {cell.meaning}" for cell in CELLS),
    )


def _summary(results: Results) -> str:
    if not results.runs:
        return "**Nothing has been run yet.**"
    machine = ", ".join(f"{name} {value}".strip() for name, value in _machine(results))
    minutes = f"Run on {results.date}, in {results.seconds / 60:.0f} minutes: {machine}."
    return "\n\n".join((_verdict(results), _totals(results), minutes))


def _machine(results: Results) -> Iterator[tuple[str, str]]:
    for name, value in results.machine.items():
        yield ("", f"{value} cores") if name == "cores" else (name, value)
    yield from sorted(
        {(database, outcome.version) for _, database, outcome in _rows(results) if outcome.version}
    )


def _verdict(results: Results) -> str:
    """Say in one sentence how many cells held."""
    run = [outcome for outcome in results.runs if not outcome.skipped]
    held = sum(outcome.is_sound for outcome in run)
    text = f"**{held} of {len(run)} cells held.** "
    text += "No check found anything." if held == len(run) else "What did not hold is below."
    skipped = len(results.runs) - len(run)
    return f"{text} {skipped} could not be run on this machine." if skipped else text


def _totals(results: Results) -> str:
    jobs, faults, answers, samples, again = (
        sum(outcome.figures.get(name, 0) for outcome in results.runs)
        for name in ("jobs", "faults", "answers", "samples", "again")
    )
    return (
        f"In total {jobs:,} jobs were enqueued and {answers:,} answers received during {faults:,} "
        f"faults, and the limits were checked {samples:,} times. {again:,} jobs ran more often "
        "than they would have without faults, which *at least once* allows."
    )


def _wrong(results: Results) -> str:
    """Return a row for each run: how much it did, how long it took, and whether it held."""
    head = ("Cell", "Jobs", "Faults", "Run again", "Longest wait, s", "First start, s")
    lines = []
    for name, database, outcome in _rows(results):
        first = f"{by_name(name).title}, {database}"
        if outcome.skipped or outcome.broken:
            lines.append((first, *[NONE] * (len(head) - 1), _unrun(outcome)))
            continue
        numbers = [f"{outcome.figures[figure]:,}" for figure in ("jobs", "faults", "again")]
        waits = [_seconds(outcome.figures[figure]) for figure in ("longest_wait", "recovery")]
        lines.append((first, *numbers, *waits, _found(outcome)))
    return "\n\n".join(filter(None, [_table((*head, "Found"), lines), *_examples(results)]))


def _found(outcome: Outcome) -> str:
    """Return how often each check found something."""
    counts = [
        f"{rule.title}: {count:,}" for rule in RULES if (count := outcome.counts.get(rule.name, 0))
    ]
    if counts or not outcome.is_sound:
        return f"**{', '.join(counts) or 'no'}**"
    return "nothing"


def _unrun(outcome: Outcome) -> str:
    return f"not run: {_cell(outcome.skipped)}" if outcome.skipped else _cell(outcome.broken)


def _examples(results: Results) -> Iterator[str]:
    """Say what was found wrong, with examples."""
    titles = {rule.name: rule.title for rule in RULES}
    for name, database, outcome in _rows(results):
        lines = [
            f"* {titles[rule]}: {'; '.join(f'`{_cell(text)}`' for text in texts)}"
            for rule, texts in outcome.examples.items()
        ]
        if lines:
            yield "\n".join([f"{by_name(name).title}, {database}:", "", *lines])


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}"


def _rows(results: Results) -> Iterator[tuple[str, str, Outcome]]:
    for cell in CELLS:
        for database, outcome in results.outcomes.get(cell.name, {}).items():
            yield cell.name, database, outcome


def _cell(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    text = " ".join(text.replace("|", "/").replace("`", "'").split())
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    rows = list(lines)
    rule = ("---",) * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)) if rows else ""
