"""The soak's part of the page: figures over time. Pure."""

from __future__ import annotations

from statistics import mean
from typing import Any

from benchmarks.charts import Line, lines

TITLES = {
    "plain": "Soak at half the peak rate",
    "held": "Soak while a transaction is held open elsewhere",
}
MEGABYTE = 1_048_576
Sample = dict[str, float]
MEANING = """One client enqueues at half the rate that it and one worker keep up, and finished jobs
are pruned after a minute. In the second run a transaction is held open for the time that is
shaded, so that the database cannot reuse the room of deleted rows."""


def figures(run: dict[str, Any]) -> dict[str, float]:
    """Return what the targets judge: means over stretches of the time.

    Without a held transaction the second quarter of the time is early and the last is late; with
    one there are the time before it, the last quarter of its own, and the last quarter of the rest.
    At the end it is behind by the jobs that wait, in seconds of enqueuing.
    """
    samples = run["samples"]
    behind = _mean(_last_quarter(samples), "waiting") / run["rate"]
    held = [index for index, sample in enumerate(samples) if sample["held"]]
    if not held:
        early, late = _early_and_late(samples)
        return {
            "throughput_early": _mean(early, "jobs_per_second"),
            "throughput_late": _mean(late, "jobs_per_second"),
            "megabytes_early": _megabytes(early),
            "megabytes_late": _megabytes(late),
            "seconds_behind": behind,
        }
    begin, end = held[0], held[-1] + 1
    stretches = {
        "before": samples[:begin],
        "held": _last_quarter(samples[begin:end]),
        "after": _last_quarter(samples[end:]),
    }
    means = {
        f"throughput_{name}": _mean(stretch, "jobs_per_second")
        for name, stretch in stretches.items()
        if stretch
    }
    return {**means, "seconds_behind": behind}


def section(soak: dict[str, Any]) -> str:
    """Return the section, empty where no soak was run."""
    if not soak:
        return ""
    parts = ["## Soak", MEANING]
    for name, title in TITLES.items():
        if name in soak:
            place = "Measured on {date}, {processor}.".format(**soak[name])
            text = f"{summary(title, soak[name])} {place}"
            parts += [f"![{title}](benchmarks/soak-{name}.svg)", text]
    return "\n\n".join(parts)


def all_charts(soak: dict[str, Any]) -> dict[str, str]:
    """Return a chart for each run, by the name of its file."""
    return {f"soak-{name}.svg": _chart(TITLES[name], soak[name]) for name in TITLES if name in soak}


def summary(title: str, run: dict[str, Any]) -> str:
    """Return what happened in words: the second quarter of the time against the last one."""
    samples = run["samples"]
    early, late = _early_and_late(samples)
    text = "; ".join(
        f"{what} {_mean(early, key) / scale:,.{digits}f} → {_mean(late, key) / scale:,.{digits}f}"
        f" {unit}"
        for what, key, scale, unit, digits in (
            ("throughput", "jobs_per_second", 1, "jobs/s", 0),
            ("table", "table_bytes", MEGABYTE, "MB", 1),
            ("indexes", "index_bytes", MEGABYTE, "MB", 1),
            ("waiting", "waiting", 1, "jobs", 0),
        )
    )
    minutes = samples[-1]["second"] / 60
    return f"{title}, {minutes:.0f} minutes, {run['rate']:,.0f} jobs enqueued per second: {text}."


def _early_and_late(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    quarter = max(len(samples) // 4, 1)
    return samples[quarter : 2 * quarter] or samples, samples[-quarter:]


def _last_quarter(samples: list[Sample]) -> list[Sample]:
    return samples[-max(len(samples) // 4, 1) :]


def _megabytes(samples: list[Sample]) -> float:
    return (_mean(samples, "table_bytes") + _mean(samples, "index_bytes")) / MEGABYTE


def _mean(samples: list[Sample], key: str) -> float:
    return mean(sample[key] for sample in samples)


def _chart(title: str, run: dict[str, Any]) -> str:
    samples = run["samples"]
    seconds = [sample["second"] for sample in samples]
    sizes = [(s["table_bytes"] + s["index_bytes"]) / MEGABYTE for s in samples]
    plots = [
        Line("jobs done per second", "/s", seconds, [s["jobs_per_second"] for s in samples]),
        Line("table and indexes", "MB", seconds, sizes),
        Line("jobs waiting", "", seconds, [s["waiting"] for s in samples]),
    ]
    held = [sample["second"] for sample in samples if sample["held"]]
    return lines(title, "", plots, (held[0], held[-1]) if held else None)
