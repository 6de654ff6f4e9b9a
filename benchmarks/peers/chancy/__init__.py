"""Chancy."""

from benchmarks.pins import PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="chancy",
    title="Chancy",
    package="benchmarks.peers.chancy",
    store="postgres",
    workloads=("W1", "W2", "W3", "W4", "W4b", "W4c", "W5", "W7"),
    tuning="Executor for asyncio, concurrency 1,000, eager polling, results written every 100 ms "
    "instead of 1 s, log at WARNING.",
    requirements=("chancy==0.26.0", PSYCOPG),
)
