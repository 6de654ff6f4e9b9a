"""The command: `python -m benchmarks`, or `make bench`; `--help` lists the options."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import page, results
from benchmarks.paths import DOCS, FOLDER
from benchmarks.rounds import Plan, described, measure
from benchmarks.services import open_services
from benchmarks.systems import System, all_systems
from benchmarks.workloads import WORKLOADS, Workload

ROUNDS = 3


def main() -> None:
    """Measure, write the results and the page."""
    options = _options()
    output = options.output or (DOCS if _is_whole(options) else FOLDER / "part")
    plan = Plan(
        options.systems or all_systems(),
        options.only or WORKLOADS,
        options.rounds or (1 if options.quick else ROUNDS),
        options.quick,
        FOLDER,
        output / "benchmarks.json",
    )
    if not options.page:
        _measure(plan, merge=options.merge)
    written = page.write(results.load(plan.path), output)
    print(f"Written: {plan.path} and {written}", flush=True)


def _measure(plan: Plan, *, merge: bool) -> None:
    FOLDER.mkdir(exist_ok=True)
    with ExitStack() as stack:
        redis = any(system.store == "redis" for system in plan.systems)
        services = open_services(stack, FOLDER, redis=redis)
        stack.callback(services.drop_postgres)
        found = described(services)
        if merge and plan.path.exists():
            found = _merged(plan.path, found)
        measure(plan, services, found)


def _merged(path: Path, found: results.Results) -> results.Results:
    try:
        return results.merged(results.load(path), found)
    except results.DifferentMachineError as error:
        sys.exit(str(error))


def _is_whole(options: argparse.Namespace) -> bool:
    return options.page or not (options.systems or options.only or options.quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure hipq_django, its peers and the raw floors on this machine. The whole "
        "benchmark writes docs/benchmarks.md; a part of it writes to .bench/part.",
    )
    parser.add_argument(
        "--only", type=_workloads, metavar="W1,W3", help="These workloads; all of them."
    )
    parser.add_argument(
        "--systems",
        type=_systems,
        metavar="NAME,…",
        help=f"These systems; all of {', '.join(system.name for system in all_systems())}.",
    )
    parser.add_argument("--rounds", type=int, help=f"How many rounds; {ROUNDS}, quick 1.")
    parser.add_argument(
        "--quick", action="store_true", help="Small sizes: whether it works, not how fast it is."
    )
    parser.add_argument(
        "--merge", action="store_true", help="Keep the other figures that the output has."
    )
    parser.add_argument("--output", type=Path, help="The folder of the results and the page.")
    parser.add_argument(
        "--page", action="store_true", help="Measure nothing, make the page from the results."
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
