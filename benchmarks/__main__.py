"""The command: `python -m benchmarks`, or `make bench`; `--help` lists the options."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import page, results
from benchmarks.options import add_run_options
from benchmarks.paths import DOCS, FILE, FOLDER
from benchmarks.rounds import Plan, described, measure
from benchmarks.services import open_services
from benchmarks.systems import System, all_systems
from benchmarks.workloads import WORKLOADS, Workload

ROUNDS = 3


def main() -> None:
    """Measure, write the results and the page."""
    options = _options()
    is_whole = not (options.systems or options.only or options.quick)
    output = options.output or (DOCS if is_whole or options.publish else FOLDER / "part")
    source = options.publish
    if source is None:
        source = FOLDER / ("whole" if is_whole else "part")
        _measure(_plan(options, source), base=output if options.merge else None)
    print("Written:", page.publish(results.load(source / FILE), output), flush=True)


def _plan(options: argparse.Namespace, folder: Path) -> Plan:
    return Plan(
        options.systems or all_systems(),
        options.only or WORKLOADS,
        options.rounds or (1 if options.quick else ROUNDS),
        options.quick,
        FOLDER,
        folder / FILE,
        options.resume,
    )


def _measure(plan: Plan, base: Path | None) -> None:
    """Measure, beside the figures of `base` or those that are to be resumed."""
    FOLDER.mkdir(exist_ok=True)
    # A time limit ends the run by SIGTERM; the servers that it started are to end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    earlier = plan.path if plan.resume else base and base / FILE
    try:
        with ExitStack() as stack:
            redis = any(system.store == "redis" for system in plan.systems)
            services = open_services(stack, FOLDER, redis=redis)
            stack.callback(services.drop_postgres)
            found = described(services)
            if earlier and earlier.exists():
                found = results.merged(results.load(earlier), found)
            measure(plan, services, found)
    except results.DifferentMachineError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(
            f"Cut off; what was measured is in {plan.path}. The same with --resume goes on, "
            f"--publish {plan.path.parent} makes the page of what is there."
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure hipq_django, its peers and the raw floors on this machine. The whole "
        "benchmark is collected in .bench/whole and published as docs/benchmarks.md when it is "
        "complete; a part of it is written to .bench/part.",
    )
    parser.add_argument(
        "--only", type=_workloads, metavar="W1,W3", help="Which workloads to run; default: all."
    )
    parser.add_argument(
        "--systems",
        type=_systems,
        metavar="NAME,…",
        help=f"Which systems; default: {', '.join(system.name for system in all_systems())}.",
    )
    add_run_options(parser, ROUNDS)
    parser.add_argument(
        "--merge", action="store_true", help="Keep the other figures of the output."
    )
    parser.add_argument("--output", type=Path, help="The folder of the results and the page.")
    parser.add_argument(
        "--publish",
        type=Path,
        nargs="?",
        const=DOCS,
        metavar="FOLDER",
        help="Measure nothing; make the page from the results in this folder; default: docs.",
    )
    return parser.parse_args()


def _workloads(text: str) -> list[Workload]:
    known = {workload.id.lower(): workload for workload in WORKLOADS}
    return [known[_known(name.lower(), list(known))] for name in text.split(",")]


def _systems(text: str) -> list[System]:
    known = {system.name: system for system in all_systems()}
    return [known[_known(name, list(known))] for name in text.split(",")]


def _known(name: str, known: list[str]) -> str:
    if name not in known:
        raise argparse.ArgumentTypeError(f"{name!r} is unknown; choose from {', '.join(known)}")
    return name


if __name__ == "__main__":
    main()
