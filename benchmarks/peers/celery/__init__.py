"""Celery with Redis."""

from benchmarks.systems import System

SYSTEM = System(
    name="celery",
    title="Celery (Redis)",
    package="benchmarks.peers.celery",
    store="redis",
    workloads=("W1", "W3", "W4", "W4b", "W4c", "W5", "W7", "W13", "W14", "W21", "W23"),
    is_slow=True,
    tuning="Pool of 8 threads, prefetch of 100 jobs for each, results ignored, no gossip, mingle "
    "or heartbeat. Late acknowledgement is off, as shipped. "
    "In W13, W14 and W23 chains; in W21 celery beat, which `worker --beat` runs in a "
    "process of its own.",
    requirements=("celery[redis]==5.7.0",),
)
