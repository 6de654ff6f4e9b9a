"""The page docs/benchmarks.md and its charts, made from the results."""

from __future__ import annotations

from pathlib import Path
from string import Template
from textwrap import shorten
from typing import TYPE_CHECKING

from benchmarks import charts, soak_report
from benchmarks.paths import FILE
from benchmarks.report import Row, Spread, rows
from benchmarks.results import save
from benchmarks.systems import System, all_systems
from benchmarks.targets import SOAK, SOAK_HELD, Target, Verdict, leads, verdicts
from benchmarks.workloads import WORKLOADS, Figure, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.results import Results

TEMPLATE = Path(__file__).with_name("page.md")
CHARTS = "benchmarks"
"""The folder of the charts, beside the page."""
LABELS = {SOAK: "Soak", SOAK_HELD: "Soak"}


def publish(results: Results, folder: Path) -> Path:
    """Write the results, the page and its charts into `folder`; return the page's path."""
    systems = all_systems()
    save(results, folder / FILE)
    (folder / CHARTS).mkdir(parents=True, exist_ok=True)
    for name, chart in all_charts(results, systems).items():
        (folder / CHARTS / name).write_text(chart)
    path = folder / "benchmarks.md"
    path.write_text(page(results, systems))
    return path


def page(results: Results, systems: list[System]) -> str:
    """Return the text of the page."""
    sections = [_section(results, workload, systems) for workload in WORKLOADS]
    return Template(TEMPLATE.read_text()).substitute(
        smallprint=_smallprint(results),
        rounds=_rounds(results),
        summary=_summary(verdicts(results)),
        targets=_targets(verdicts(results)),
        leads=_bullets(leads(results, systems)),
        machine=_table(("", ""), [*results.machine.items(), *results.servers.items()]),
        systems=_systems(results, systems),
        sections="\n\n".join(filter(None, [*sections, soak_report.section(results.soak)])),
    )


def _rounds(results: Results) -> str:
    """Return how often workloads were run: some may have been measured anew, and more often."""
    tries = {number for by_system in results.tries.values() for number in by_system.values()}
    least, most = min(tries, default=results.rounds), max(tries, default=results.rounds)
    if most == 1:
        return "one round"
    return f"{most if least == most else f'{least} to {most}'} interleaved rounds"


def all_charts(results: Results, systems: list[System]) -> dict[str, str]:
    """Return the charts by the names of their files."""
    drawn = {
        f"{workload.id.lower()}.svg": _chart(workload, rows(results, workload, systems))
        for workload in WORKLOADS
        if rows(results, workload, systems)
    }
    return {**drawn, **soak_report.all_charts(results.soak)}


def _smallprint(results: Results) -> str:
    minutes = f"It took {results.seconds / 60:.0f} minutes."
    if not results.quick:
        return f"Measured on {results.date}. {minutes}"
    return (
        f"Measured on {results.date}. {minutes} **With `--quick`: sizes so small that the figures "
        "only show that everything runs.**"
    )


def _summary(found: list[Verdict]) -> str:
    reached, missed, unknown = (
        [verdict for verdict in found if verdict.is_met is answer] for answer in (True, False, None)
    )
    text = f"{len(reached)} of {len(found)} targets reached, {len(missed)} missed"
    return f"{text}, {len(unknown)} not measured." if unknown else f"{text}."


def _targets(found: list[Verdict]) -> str:
    """Return a row for each target that was missed."""
    lines = [
        (
            LABELS.get(target.of.workload, target.of.workload),
            target.what,
            target.wanted,
            _reached(target, verdict.reached),
        )
        for verdict in found
        for target in [verdict.target]
        if verdict.reached is not None and not verdict.is_met
    ]
    return _table(("", "Target", "Wanted", "Reached"), lines)


def _reached(target: Target, reached: float) -> str:
    digits = next((n for bound, n in ((100, 0), (10, 1), (1, 2)) if reached >= bound), 3)
    return f"{reached:,.{digits}f}{target.suffix}"


def _systems(results: Results, systems: Iterable[System]) -> str:
    lines = [
        (system.title, _version(results, system), system.tuning)
        for system in systems
        if system.name in results.versions or system.name in results.missing
    ]
    return _table(("System", "Version", "How it was set up"), lines)


def _version(results: Results, system: System) -> str:
    if system.name in results.missing:
        return f"not measured: {results.missing[system.name]}".replace("|", "/")
    versions = results.versions[system.name]
    names = [name.partition("==")[0].partition("[")[0] for name in system.requirements]
    names = names or ["hipq-django" if system.is_ours else "psycopg", "Django", "psycopg"]
    found = [f"{name} {versions[name]}" for name in dict.fromkeys(names) if name in versions]
    return ", ".join(found)


# One workload


def _section(results: Results, workload: Workload, systems: list[System]) -> str:
    found = rows(results, workload, systems)
    troubles = list(_troubles(results, workload, systems))
    if not found and not troubles:
        return ""
    parts = [f"## {workload.id}: {workload.title}", workload.meaning]
    if found:
        parts.append(f"![{workload.id}]({CHARTS}/{workload.id.lower()}.svg)")
        parts.append(_figures(workload, found))
    if troubles:
        parts.append(_bullets(troubles))
    return "\n\n".join(parts)


def _figures(workload: Workload, found: list[Row]) -> str:
    """Return our own figures; the chart has one of each system."""
    lines = []
    for row in found:
        if row.system.is_ours:
            pairs = zip(workload.figures, row.spreads, strict=True)
            said = "; ".join(
                f"{_headed(figure)} {_cell(figure, spread)}" for figure, spread in pairs
            )
            lines.append(f"{row.system.title}: {said}")
    return _bullets(lines)


def _troubles(results: Results, workload: Workload, systems: list[System]) -> Iterator[str]:
    """What a reader has to know of single systems."""
    for system in systems:
        for note in results.notes.get(workload.id, {}).get(system.name, []):
            yield f"{system.title}: {note}"
        for error in results.errors.get(workload.id, {}).get(system.name, []):
            yield f"{system.title} failed: `{shorten(error.replace('`', ''), 100)}`"


def _headed(figure: Figure) -> str:
    return f"{figure.title}, {figure.unit}" if figure.unit else figure.title


def _cell(figure: Figure, spread: Spread | None) -> str:
    if spread is None:
        return "–"  # noqa: RUF001 - a dash in a table
    text = _number(figure, spread.median)
    if len(spread.values) == 1:
        return text
    return f"{text} ({_number(figure, spread.least)} to {_number(figure, spread.most)})"


def _number(figure: Figure, value: float) -> str:
    return f"{value:,.{figure.decimals}f}"


def _chart(workload: Workload, found: list[Row]) -> str:
    """Draw the systems by one figure, or where only ours is there, its figures of one unit."""
    names = [figure.name for figure in workload.figures]
    index = names.index(workload.charted) if workload.charted else 0
    figure = workload.figures[index]
    headed = _headed(figure)
    if len(found) == 1:
        headed = figure.unit or figure.title
        entries = _own_bars(workload, figure, found[0])
    else:
        entries = [
            charts.Bar(row.system.title, spread.median, _number(figure, spread.median), _kind(row))
            for row in found
            if (spread := row.spreads[index])
        ]
    way = "more is better" if figure.more_is_better else "less is better"
    return charts.bars(f"{workload.id}: {workload.title}", f"{headed}, {way}", entries)


def _own_bars(workload: Workload, drawn: Figure, row: Row) -> list[charts.Bar]:
    return [
        charts.Bar(figure.title, spread.median, _number(figure, spread.median), "ours")
        for figure, spread in zip(workload.figures, row.spreads, strict=True)
        if spread and figure.unit == drawn.unit
    ]


def _kind(row: Row) -> str:
    if row.system.is_ours:
        return "ours"
    return "peer" if row.system.is_peer else "floor"


# Markdown


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    rule = ("---",) * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"* {text}" for text in texts) or "None."
