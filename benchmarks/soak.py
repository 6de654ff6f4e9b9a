"""The command `python -m benchmarks.soak`, or `make soak`: a steady load for a long time."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import page, results
from benchmarks.environments import versions_in
from benchmarks.paths import DOCS, FOLDER
from benchmarks.rounds import described
from benchmarks.runs import run
from benchmarks.services import Services, open_services
from benchmarks.soak_report import TITLES, summary

PEAK_SECONDS = 20
SAMPLES = 120
"""How many samples a run has, at the most one each second."""
SPARE_SECONDS = 300


def main() -> None:
    """Run both soaks, add them to the results and write the page anew."""
    options = _options()
    output = options.output or (DOCS if options.minutes >= 30 else FOLDER / "part")
    path = output / "benchmarks.json"
    FOLDER.mkdir(exist_ok=True)
    with ExitStack() as stack:
        services = open_services(stack, FOLDER, redis=False)
        stack.callback(services.drop_postgres)
        found = results.load(path) if path.exists() else described(services)
        found.versions["hipq_django"] = versions_in(sys.executable)
        for name, held in (("plain", 0.0), ("held", options.held_minutes)):
            if name == "plain" or held:
                found.soak[name] = _soaked(services, name, options.minutes, held)
                results.save(found, path)
    print(f"Written: {path} and {page.write(found, output)}", flush=True)


def _soaked(services: Services, name: str, minutes: float, held: float) -> dict[str, Any]:
    seconds = minutes * 60
    sizes = {
        "seconds": seconds,
        "held_seconds": held * 60,
        "peak_seconds": min(PEAK_SECONDS, seconds / 3),
        "sample_seconds": max(seconds / SAMPLES, 1.0),
    }
    outcome = run(
        [sys.executable, "-m", "benchmarks.hipq", "soak"],
        sizes,
        {"DATABASE_URL": services.fresh_postgres("soak")},
        seconds + SPARE_SECONDS,
        FOLDER / f"soak-{name}.log",
    )
    if outcome.error or not outcome.samples:
        sys.exit(f"The soak failed: {outcome.error or 'there are no samples'}")
    soaked = {**outcome.figures, "sizes": sizes, "samples": outcome.samples}
    print(summary(TITLES[name], soaked), flush=True)
    return soaked


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description="Run hipq_django at half its peak rate with pruning, then again while a "
        "transaction is held open elsewhere; add both to the benchmark's results and page.",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="For each run; %(default)s.")
    parser.add_argument(
        "--held-minutes",
        type=float,
        default=10.0,
        help="How long the transaction is held open, 0: no second run; %(default)s.",
    )
    parser.add_argument(
        "--output", type=Path, help="The folder of results and page; docs from 30 minutes on."
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
