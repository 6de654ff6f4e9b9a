"""pgqueuer, on asyncpg."""

from benchmarks.pins import PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="pgqueuer",
    title="pgqueuer",
    package="benchmarks.peers.pgqueuer",
    store="postgres",
    workloads=("W1", "W2", "W3", "W4", "W4b", "W4c", "W5", "W7"),
    tuning="asyncpg and uvloop, batches of 500; for handlers that wait `max_concurrent_tasks`.",
    requirements=("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0", PSYCOPG),
)
