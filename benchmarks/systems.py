"""The systems that are measured, as data; how each is used is in its own package."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

PACKAGES = (
    "benchmarks.hipq",
    "benchmarks.hipq_sqlite",
    "benchmarks.floors.postgres",
    "benchmarks.peers.pgqueuer",
    "benchmarks.peers.procrastinate",
    "benchmarks.peers.django_tasks_db",
    "benchmarks.peers.dbos",
    "benchmarks.peers.chancy",
    "benchmarks.peers.dj_queue",
    "benchmarks.peers.django_q2",
    "benchmarks.peers.huey",
    "benchmarks.peers.huey_sqlite",
    "benchmarks.peers.celery",
    "benchmarks.peers.dramatiq",
    "benchmarks.peers.prefect",
)


@dataclass(frozen=True)
class System:
    """One system: `package` is run in an environment that holds `requirements`, with versions.

    Without requirements it is run in the environment of the benchmark itself. `store` is
    "postgres", "redis" or "sqlite"; `workloads` are ids of `benchmarks.workloads`; `tuning` says
    how the system was set up, for the reader of the figures. One that `is_slow` is given fewer
    jobs to drain; `sizes` are those of single workloads that differ for this system alone.
    """

    name: str
    title: str
    package: str
    store: str
    workloads: tuple[str, ...]
    tuning: str
    requirements: tuple[str, ...] = ()
    is_ours: bool = False
    is_slow: bool = False
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)

    @property
    def is_peer(self) -> bool:
        """Whether it is another queue, neither ours nor a floor."""
        return self.package.startswith("benchmarks.peers.")


def all_systems() -> list[System]:
    """Return the systems in the order in which they are measured and shown."""
    return [import_module(package).SYSTEM for package in PACKAGES]
