"""DBOS."""

from benchmarks.pins import PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="dbos",
    title="DBOS",
    package="benchmarks.peers.dbos",
    store="postgres",
    workloads=("W13", "W14"),
    is_slow=True,
    tuning="A workflow of three steps in a queue that is asked every 10 ms, 30 workflows at a "
    "time, pool of 20 connections. Each step is recorded before the next one begins.",
    requirements=("dbos==3.4.0", PSYCOPG),
)
