"""Dramatiq with Redis."""

from benchmarks.pins import REDIS
from benchmarks.systems import System

SYSTEM = System(
    name="dramatiq",
    title="Dramatiq (Redis)",
    package="benchmarks.peers.dramatiq",
    store="redis",
    workloads=("W1", "W3", "W4", "W4b", "W4c", "W5", "W7"),
    tuning="1 process with 8 threads, prefetch of 1,000 jobs, no result.",
    requirements=("dramatiq==2.2.1", REDIS),
)
