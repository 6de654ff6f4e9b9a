"""Runs systems and workloads in turn, several rounds, so that a slow minute hits all alike."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks import machine
from benchmarks.environments import NotInstalledError, python_of, versions_in
from benchmarks.results import Results, save
from benchmarks.runs import Outcome, run
from benchmarks.services import NoServiceError, Services

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.systems import System
    from benchmarks.workloads import Workload


@dataclass(frozen=True)
class Plan:
    """What is to be run. `folder` holds environments and logs, `path` is the file of results.

    With `resume` what the results have already is not run again.
    """

    systems: Sequence[System]
    workloads: Sequence[Workload]
    rounds: int
    quick: bool
    folder: Path
    path: Path
    resume: bool = False

    def runs(self) -> list[tuple[Workload, System]]:
        """Return the runs of one round; what is compared runs within the same minute, if it can."""
        runs = [
            (workload, system)
            for workload in self.workloads
            for system in self.systems
            if workload.measurement and workload.id in system.workloads
        ]
        places = [workload.id for workload in self.workloads]

        def place(run: tuple[Workload, System]) -> tuple[int, int]:
            workload, system = run
            beside = workload.beside if workload.beside in places else workload.id
            return places.index(beside), list(self.systems).index(system)

        return sorted(runs, key=place)


def measure(plan: Plan, services: Services, results: Results) -> None:
    """Run the plan; after each run the results are saved, so that nothing is lost.

    A run that failed is not tried again in later rounds: most take their full time to fail.
    """
    pythons = _installed(plan, results)
    runs = [(workload, system) for workload, system in plan.runs() if system.name in pythons]
    if not plan.resume:
        for workload, system in runs:
            results.forget(workload.id, system.name)
    results.rounds = max(results.rounds, plan.rounds)
    results.quick = results.quick or plan.quick
    results.date = datetime.now(UTC).date().isoformat()
    left = [
        run
        for number in range(plan.rounds)
        for run in runs
        if results.tried(run[0].id, run[1].name) <= number
    ]
    began, before = time.monotonic(), results.seconds
    for number, (workload, system) in enumerate(left, start=1):
        if results.has_failed(workload.id, system.name):
            continue
        outcome = _run(plan, services, workload, system, pythons[system.name])
        _record(results, workload, system, plan, outcome)
        results.seconds = before + time.monotonic() - began
        save(results, plan.path)
        _say(f"{number}/{len(left)}", workload, system, outcome)


def described(services: Services) -> Results:
    """Return results without figures, with the machine and the servers."""
    return Results(machine=machine.describe(), servers=services.versions())


def _installed(plan: Plan, results: Results) -> dict[str, str]:
    """Return the interpreter of each system; what cannot be had is noted and left out."""
    pythons: dict[str, str] = {}
    for system in plan.systems:
        try:
            pythons[system.name] = python_of(system, plan.folder / "environments")
        except NotInstalledError as error:
            results.missing[system.name] = str(error)
            print(f"{system.title} is left out: {error}", flush=True)
        else:
            results.missing.pop(system.name, None)
            results.versions[system.name] = versions_in(pythons[system.name])
    return pythons


def _run(
    plan: Plan, services: Services, workload: Workload, system: System, python: str
) -> Outcome:
    try:
        environment = _environment(services, workload, system)
    except NoServiceError as error:
        return Outcome(error=str(error))
    logs = plan.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return run(
        [python, "-m", system.package, workload.measurement],
        workload.sizes_of(system, quick=plan.quick),
        environment,
        workload.quick_limit_seconds if plan.quick else workload.limit_seconds,
        logs / f"{workload.id}-{system.name}.log",
    )


_kept: dict[str, str] = {}


def _environment(services: Services, workload: Workload, system: System) -> dict[str, str]:
    """Return the variables that name an empty store."""
    if system.store == "redis":
        return {"REDIS_URL": services.fresh_redis()}
    if system.store == "sqlite":
        return {}
    name = f"{system.name}_{workload.id.lower()}" if workload.keeps_database else system.name
    if not workload.keeps_database:
        return {"DATABASE_URL": services.fresh_postgres(name)}
    if name not in _kept:
        _kept[name] = services.fresh_postgres(name)
    return {"DATABASE_URL": _kept[name]}


def _record(
    results: Results, workload: Workload, system: System, plan: Plan, outcome: Outcome
) -> None:
    sizes = workload.sizes_of(system, quick=plan.quick)
    results.sizes.setdefault(workload.id, {})[system.name] = dict(sizes)
    results.add_try(workload.id, system.name)
    results.add(workload.id, system.name, outcome.figures)
    for note in outcome.notes:
        results.add_note(workload.id, system.name, note)
    if outcome.error:
        results.add_error(workload.id, system.name, outcome.error)


def _say(number: str, workload: Workload, system: System, outcome: Outcome) -> None:
    figures = "  ".join(f"{name} {value:,.3f}" for name, value in outcome.figures.items())
    text = "  ".join([figures, *outcome.notes, outcome.error and f"FAILED: {outcome.error}"])
    print(
        f"{number:>7}  {workload.id:4} {system.title:22} {outcome.seconds:5.0f} s  {text}",
        flush=True,
    )
