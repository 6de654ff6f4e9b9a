"""The command `python -m benchmarks.soak`, or `make soak`: a steady load for a long time.

The two runs are independent; each is kept as soon as it is over.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import page, results
from benchmarks.environments import versions_in
from benchmarks.machine import describe
from benchmarks.paths import DOCS, FILE, FOLDER
from benchmarks.rounds import described
from benchmarks.runs import run
from benchmarks.services import Services, open_services
from benchmarks.soak_report import TITLES, figures, summary
from benchmarks.targets import OURS, SOAK, SOAK_HELD

FIGURES = {"plain": SOAK, "held": SOAK_HELD}
BEFORE, AFTER = 0.2, 0.4
"""How long the second run is before and after the held transaction, in terms of its time."""
PEAK_SECONDS = 20
SAMPLES = 120
"""How many samples a run has, at the most one each second."""
SPARE_SECONDS = 300


def main() -> None:
    """Run both soaks, add them to the results and write the page anew."""
    options = _options()
    is_whole = options.minutes >= 30 and options.held_minutes >= 10
    output = options.output or (DOCS if is_whole else FOLDER / "part")
    path = output / FILE
    FOLDER.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        services = open_services(stack, FOLDER, redis=False)
        stack.callback(services.drop_postgres)
        found = results.load(path) if path.exists() else described(services)
        found.versions["hipq_django"] = versions_in(sys.executable)
        for name, minutes, held in (
            ("plain", options.minutes, 0.0),
            ("held", options.held_minutes * (BEFORE + 1 + AFTER), options.held_minutes),
        ):
            if minutes:
                found.soak[name] = _soaked(services, name, minutes * 60, held * 60)
                found.forget(FIGURES[name], OURS)
                found.add(FIGURES[name], OURS, figures(found.soak[name]))
                print("Written:", page.publish(found, output), flush=True)


def _soaked(services: Services, name: str, seconds: float, held: float) -> dict[str, Any]:
    sizes = {
        "seconds": seconds,
        "held_from": held * BEFORE,
        "held_seconds": held,
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
    place = {"date": datetime.now(UTC).date().isoformat(), "processor": describe()["processor"]}
    soaked = {**outcome.figures, **place, "sizes": sizes, "samples": outcome.samples}
    print(summary(TITLES[name], soaked), flush=True)
    return soaked


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description="Run hipq_django at half its peak rate with pruning, then again while a "
        "transaction is held open elsewhere; add both to the benchmark's results and page.",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="Minutes of the first run, 0 for none; default: %(default)s.",
    )
    parser.add_argument(
        "--held-minutes",
        type=float,
        default=10.0,
        help="Minutes for which the transaction is held open in the second run, which takes "
        f"{BEFORE + 1 + AFTER:g} times as long, 0 for none; default: %(default)s.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="The folder of results and page; default: docs if both runs are complete.",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
