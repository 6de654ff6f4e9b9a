"""The command: `python -m chaos`, or `make chaos`; `--help` lists the options."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import django

from chaos import page, results
from chaos.cells import CELLS, Cell, by_name
from chaos.databases import POSTGRES, SQLITE
from chaos.paths import DOCS, FILE, FOLDER
from chaos.results import Outcome, Results
from chaos.run import RESULT

MINUTES = 0.6
SEED = 1
WHOLE = "whole"
SPARE_SECONDS = 600.0
"""How much longer than its faults a cell may take before it is ended."""


def main() -> None:
    """Run the cells, write the results and the page; leave with 1 if something was wrong."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = options.folder or FOLDER / (WHOLE if _is_whole(options) else "part")
    if not options.publish:
        try:
            _run_all(options, folder)
        except KeyboardInterrupt:
            sys.exit(f"Cut off; what was found is in {folder / FILE}.")
    found = results.load(folder / FILE)
    output = DOCS if options.publish else folder
    results.save(found, output / FILE)
    print("Written:", page.publish(found, output), flush=True)
    if not all(outcome.is_sound or outcome.skipped for outcome in found.runs):
        sys.exit(1)


def _is_whole(options: argparse.Namespace) -> bool:
    return options.publish or options.merge or not (options.only or options.database)


def _run_all(options: argparse.Namespace, folder: Path) -> None:
    """Run cell after cell; the results are written after each."""
    found = results.load(folder / FILE) if options.merge else Results()
    found.date = datetime.now(UTC).date().isoformat()
    found.fault_seconds, found.seed = options.minutes * 60, options.seed
    found.machine |= _machine()
    for cell in options.only or CELLS:
        for database in cell.databases:
            if database in (options.database or cell.databases):
                began = time.monotonic()
                outcome = _run(cell, database, options, folder)
                found.outcomes.setdefault(cell.name, {})[database] = outcome
                found.seconds += time.monotonic() - began
                results.save(found, folder / FILE)
                print(f"{cell.name:20} {database:10} {_verdict(outcome)}", flush=True)


def _run(cell: Cell, database: str, options: argparse.Namespace, base: Path) -> Outcome:
    """Run one cell in a process of its own, so that nothing of it is left for the next one."""
    folder = base / f"{cell.name}-{database}".lower()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "chaos.cell", cell.name, database, str(folder)]
    command += [f"--seconds={options.minutes * 60}", f"--seed={options.seed}"]
    with (folder / "cell.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            process.wait(options.minutes * 60 + SPARE_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome(broken="It took too long; see cell.log.")
        finally:
            _end(process)
    return _outcome(folder)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a cell that is still there to end, which also ends its workers and its server."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _outcome(folder: Path) -> Outcome:
    if (folder / RESULT).exists():
        return results.load_outcome(folder / RESULT)
    words = (folder / "cell.log").read_text(errors="replace").strip().splitlines()
    return Outcome(broken=words[-1] if words else "It left without a word.")


def _verdict(outcome: Outcome) -> str:
    if outcome.skipped or outcome.broken:
        return f"skipped: {outcome.skipped}" if outcome.skipped else f"BROKEN: {outcome.broken}"
    wrong = [f"{name} {count}" for name, count in outcome.counts.items() if count]
    return f"WRONG: {', '.join(wrong)}" if wrong else f"held, {outcome.figures['jobs']:,} jobs"


def _machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
        "Django": django.get_version(),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Put workers under load and faults, check a ledger that is kept outside the "
        "database, and write what held. A whole run is collected in .chaos/whole and published as "
        "docs/crash-tests.md with --publish; some cells are written to .chaos/part.",
    )
    parser.add_argument(
        "--only",
        type=_cells,
        metavar="CELL,…",
        help=f"Which cells to run; default: all of {', '.join(cell.name for cell in CELLS)}.",
    )
    parser.add_argument(
        "--database",
        action="append",
        choices=(POSTGRES, SQLITE),
        help="Only this database; default: both.",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        help="Minutes of faults in each cell; default: %(default)s.",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help="The random seed; default: %(default)s."
    )
    parser.add_argument(
        "--merge", action="store_true", help="Put these cells into the results of the whole run."
    )
    parser.add_argument(
        "--folder", type=Path, help="Where to write results, page and logs; default: in .chaos."
    )
    parser.add_argument(
        "--publish", action="store_true", help="Run nothing; write docs/crash-tests.md."
    )
    return parser.parse_args()


def _cells(text: str) -> list[Cell]:
    known = [cell.name for cell in CELLS]
    for name in text.split(","):
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is unknown; choose from {', '.join(known)}")
    return [by_name(name) for name in text.split(",")]


if __name__ == "__main__":
    main()
