"""Huey with Redis."""

from benchmarks.pins import REDIS
from benchmarks.systems import System

HUEY = "huey==3.5.4"
SYSTEM = System(
    name="huey",
    title="Huey (Redis)",
    package="benchmarks.peers.huey",
    store="redis",
    workloads=("W1", "W3", "W3b", "W3c", "W4", "W4b", "W4c", "W5", "W7"),
    tuning="2 threads, blocking pop. A job is gone from Redis when a worker has taken it.",
    requirements=(HUEY, REDIS),
)
