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
SPARE_SECONDS = 600.0
"""How much longer than its faults a cell may take before it is ended."""


def main() -> None:
    """Run the cells, write the results and the page; leave with 1 if something was wrong."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    output = options.output or (DOCS if options.publish else FOLDER)
    found = results.load(options.publish / FILE) if options.publish else _run_all(options)
    results.save(found, output / FILE)
    print("Written:", page.publish(found, output), flush=True)
    if not all(outcome.is_sound or outcome.skipped for outcome in found.runs):
        sys.exit(1)


def _run_all(options: argparse.Namespace) -> Results:
    began = time.monotonic()
    found = Results(
        date=datetime.now(UTC).date().isoformat(),
        fault_seconds=options.minutes * 60,
        seed=options.seed,
        machine=_machine(),
    )
    for cell in options.only or CELLS:
        for database in cell.databases:
            if database in (options.database or (POSTGRES, SQLITE)):
                outcome = _run(cell, database, options, found.machine)
                found.outcomes.setdefault(cell.name, {})[database] = outcome
                found.seconds = time.monotonic() - began
                results.save(found, FOLDER / FILE)
                print(f"{cell.name:20} {database:10} {_verdict(outcome)}", flush=True)
    return found


def _run(
    cell: Cell, database: str, options: argparse.Namespace, machine: dict[str, str]
) -> Outcome:
    """Run one cell in a process of its own, so that nothing of it is left for the next one."""
    folder = FOLDER / f"{cell.name}-{database}".lower()
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
    return _outcome(folder, database, machine)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a cell that is still there to end, which also ends its workers and its server."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _outcome(folder: Path, database: str, machine: dict[str, str]) -> Outcome:
    if not (folder / RESULT).exists():
        words = (folder / "cell.log").read_text(errors="replace").strip().splitlines()
        return Outcome(broken=words[-1] if words else "It left without a word.")
    read = results.read_outcome(folder / RESULT)
    machine[database] = read.version or machine.get(database, "")
    return read.outcome


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
        "database, and write what held. The page is written to .chaos; with --publish to docs.",
    )
    parser.add_argument(
        "--only",
        type=_cells,
        metavar="CELL,…",
        help=f"These cells; all of {', '.join(cell.name for cell in CELLS)}.",
    )
    parser.add_argument(
        "--database", action="append", choices=(POSTGRES, SQLITE), help="This one; both."
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="Of faults in each cell; %(default)s."
    )
    parser.add_argument("--seed", type=int, default=SEED, help="Of all chance; %(default)s.")
    parser.add_argument(
        "--output", type=Path, help="The folder of results and page; .chaos, or docs."
    )
    parser.add_argument(
        "--publish",
        type=Path,
        nargs="?",
        const=FOLDER,
        metavar="FOLDER",
        help="Run nothing: make the page of the results in this folder, .chaos.",
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
