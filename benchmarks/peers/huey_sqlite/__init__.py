"""Huey with SQLite."""

from benchmarks.peers.huey import HUEY
from benchmarks.systems import System

SYSTEM = System(
    name="huey_sqlite",
    title="Huey (SQLite)",
    package="benchmarks.peers.huey",
    store="sqlite",
    workloads=("W12",),
    tuning="1 thread, polls every 10 ms; WAL. A job is gone when a worker has taken it.",
    requirements=(HUEY,),
)
