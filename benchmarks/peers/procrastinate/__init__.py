"""Procrastinate."""

from benchmarks.pins import PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="procrastinate",
    title="Procrastinate",
    package="benchmarks.peers.procrastinate",
    store="postgres",
    workloads=(
        *("W1", "W2", "W3", "W3b", "W3c", "W4", "W4b", "W4c", "W5", "W7"),
        *("W13", "W14", "W21", "W22", "W23"),
    ),
    is_slow=True,
    tuning="`async def` task, concurrency 30, pool of 10 connections, LISTEN and NOTIFY. "
    "In W13, W14 and W23 each task defers the next, in a transaction of its own.",
    requirements=("procrastinate==3.10.0", PSYCOPG),
)
