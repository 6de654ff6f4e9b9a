"""The command `python -m benchmarks.states COMMIT`: how fast this state is beside an earlier one.

Each state runs its own runner with its own code, in turn, in databases of the same server.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import results, states_report
from benchmarks.environments import versions_in
from benchmarks.options import add_run_options
from benchmarks.paths import DOCS, FOLDER, ROOT
from benchmarks.rounds import described
from benchmarks.runs import Outcome, run
from benchmarks.services import Services, open_services
from benchmarks.states_report import BEFORE, COMPARED, NOW, Known, lacking, runs_of
from benchmarks.systems import System, all_systems
from benchmarks.workloads import Workload, by_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.results import Results

ROUNDS = 25
SIZES: dict[str, dict[str, float]] = {
    "W1": {"jobs": 1_000},
    "W5": {"jobs": 100, "pause_seconds": 0.05, "idle_seconds": 0.1},
    "W8": {"jobs": 40_000},
    "W9": {"waiting": 40_000, "share": 2_000},
}
"""Sizes other than those beside peers: a machine's speed changes within minutes, so the two runs
that are compared lie seconds apart, and there are many of them."""
ASKED = """
import json, pathlib, hipq_django
from benchmarks.workloads import WORKLOADS
known = {w.id: [w.measurement, *sorted(w.sizes)] for w in WORKLOADS}
folder = pathlib.Path(hipq_django.__file__).parents[1]
print(json.dumps({"folder": str(folder.resolve()), "workloads": known}))
"""


class StateError(Exception):
    """The other state cannot be measured; says why."""


@dataclass(frozen=True)
class Comparison:
    """What is to be compared: `folders` has the checkout of each state, `path` the results."""

    folders: dict[str, Path]
    workloads: Sequence[Workload]
    rounds: int
    quick: bool
    path: Path


def main() -> None:
    """Compare, write results and page; exit with 1 where this state is slower, or failed."""
    options = _options()
    try:
        commit = _git("rev-parse", "--short=7", f"{options.commit}^{{commit}}")
        found, path = _compared(commit, options)
    except (StateError, results.DifferentMachineError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Cut off; the same with --resume goes on.")
    text = states_report.page(found)
    path.with_suffix(".md").write_text(text)
    print(f"\n{text}\nWritten: {path.with_suffix('.md')}", flush=True)
    sys.exit(0 if states_report.is_as_fast(found) else 1)


def _compared(commit: str, options: argparse.Namespace) -> tuple[Results, Path]:
    """Measure both states; after each run the results are saved."""
    folder = options.output or (FOLDER / "part" if options.only or options.quick else DOCS)
    path = folder / states_report.FOLDER / f"before-{commit}.json"
    FOLDER.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        before = stack.enter_context(_checked_out(commit))
        services = open_services(stack, FOLDER, redis=False)
        stack.callback(services.drop_postgres)
        workloads = options.only or [by_id(name) for name in COMPARED]
        rounds = options.rounds or (1 if options.quick else ROUNDS)
        folders = {BEFORE: before, NOW: ROOT}
        plan = Comparison(folders, workloads, rounds, options.quick, path)
        found = _begun(plan, services, commit, resume=options.resume)
        _measure(plan, services, found)
    return found, path


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """Check the commit out beside the other files of the benchmark, for as long as it is used."""
    place = FOLDER / "states" / commit
    _git("worktree", "prune")
    if place.exists():  # somebody was cut off too hard to tidy up
        _git("worktree", "remove", "--force", "--force", str(place))
    _git("worktree", "add", "--detach", str(place), commit)
    try:
        yield place
    finally:
        _git("worktree", "remove", "--force", str(place))


def _begun(plan: Comparison, services: Services, commit: str, *, resume: bool) -> Results:
    """Return the results that are to be completed, with what the other state cannot measure."""
    found = described(services)
    found.rounds, found.quick = plan.rounds, plan.quick
    found.versions = {
        "": versions_in(sys.executable),
        BEFORE: {"commit": commit, "subject": _git("log", "-1", "--format=%s", commit)},
        NOW: {"commit": _this_commit(), "subject": _git("log", "-1", "--format=%s")},
    }
    if resume and plan.path.exists():
        earlier = results.load(plan.path)
        if earlier.versions[NOW] != found.versions[NOW]:
            raise StateError(
                f"{plan.path} was begun with {earlier.versions[NOW]['commit']}, and this is "
                f"{found.versions[NOW]['commit']}; begin anew, without --resume."
            )
        found = results.merged(earlier, found)
    measured = known(plan.folders[BEFORE])
    for workload in plan.workloads:
        if why := lacking(workload, measured):
            found.add_note(workload.id, BEFORE, why)
            print(f"{workload.id} is left out: {why}", flush=True)
    return found


def known(folder: Path) -> Known:
    """Return what the state in this folder measures; raise `StateError` if that cannot be said."""
    said = subprocess.run(
        [sys.executable, "-c", ASKED], cwd=folder, capture_output=True, text=True, check=False
    )
    if said.returncode:
        raise StateError(f"The benchmark of {folder.name} does not run here:\n{said.stderr}")
    answer = json.loads(said.stdout)
    if Path(answer["folder"]) != folder.resolve():
        raise StateError(f"In {folder} Python imports hipq_django from {answer['folder']}.")
    return {name: (first, *keys) for name, (first, *keys) in answer["workloads"].items()}


def _measure(plan: Comparison, services: Services, found: Results) -> None:
    workloads = [w for w in plan.workloads if not found.notes.get(w.id)]
    left = [
        (workload, state)
        for number, workload, state in runs_of(workloads, plan.rounds)
        if found.tried(workload.id, state) <= number
    ]
    found.date = datetime.now(UTC).date().isoformat()
    for number, (workload, state) in enumerate(left, start=1):
        if workload.id in found.errors:
            continue
        outcome = _run(plan, services, workload, state)
        _record(found, workload, state, outcome)
        results.save(found, plan.path)
        figures = "  ".join(f"{name} {value:,.3f}" for name, value in outcome.figures.items())
        said = outcome.error and f"FAILED: {outcome.error}"
        print(f"{number}/{len(left)}  {workload.id:4} {state:6}  {figures}{said}", flush=True)


def _run(plan: Comparison, services: Services, workload: Workload, state: str) -> Outcome:
    system = system_of(workload)
    is_served = system.store == "postgres"
    sizes = {} if plan.quick else SIZES.get(workload.id, {})
    logs = FOLDER / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return run(
        [sys.executable, "-m", system.package, workload.measurement],
        {**workload.sizes_of(system, quick=plan.quick), **sizes},
        {"DATABASE_URL": services.fresh_postgres(state)} if is_served else {},
        workload.quick_limit_seconds if plan.quick else workload.limit_seconds,
        logs / f"{workload.id}-{state}.log",
        plan.folders[state],
    )


def system_of(workload: Workload) -> System:
    """Return ours with which a workload is measured: on PostgreSQL, if it is measured there."""
    return next(s for s in all_systems() if s.is_ours and workload.id in s.workloads)


def _record(found: Results, workload: Workload, state: str, outcome: Outcome) -> None:
    found.add_try(workload.id, state)
    found.add(workload.id, state, outcome.figures)
    found.seconds += outcome.seconds
    if outcome.error:
        found.add_error(workload.id, state, outcome.error)


def _this_commit() -> str:
    # Not in docs, where the results are saved: a run that is resumed has saved some already.
    changed = " with changes" if _git("status", "--porcelain", "--", ":!docs") else ""
    return _git("rev-parse", "--short=7", "HEAD") + changed


def _git(*arguments: str) -> str:
    """Return what git says; raise `StateError` where it refuses."""
    said = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if said.returncode:
        raise StateError(f"git {' '.join(arguments)}: {said.stderr.strip()}")
    return said.stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.states",
        description="Measure hipq_django as it is here and as it was at COMMIT, in turn, each with "
        "its own runner, and compare. Exit with 1 if this state is slower.",
    )
    parser.add_argument("commit", metavar="COMMIT", help="The state before, as git names it.")
    parser.add_argument(
        "--only",
        type=_workloads,
        metavar="W1,W3",
        help=f"Which workloads to run; default: {','.join(COMPARED)}.",
    )
    add_run_options(parser, ROUNDS)
    parser.add_argument(
        "--output",
        type=Path,
        help="The folder of results and page; default: docs if the run is complete.",
    )
    return parser.parse_args()


def _workloads(text: str) -> list[Workload]:
    ours = {name.lower() for system in all_systems() if system.is_ours for name in system.workloads}
    for name in (names := text.lower().split(",")):
        if name not in ours:
            raise argparse.ArgumentTypeError(f"{name!r} is none of ours: {', '.join(sorted(ours))}")
    return [by_id("W" + name[1:]) for name in names]


if __name__ == "__main__":
    main()
