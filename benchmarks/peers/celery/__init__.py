"""Celery with Redis."""

from benchmarks.systems import System

SYSTEM = System(
    name="celery",
    title="Celery (Redis)",
    package="benchmarks.peers.celery",
    store="redis",
    workloads=("W1", "W3", "W4", "W4b", "W4c", "W5", "W7"),
    is_slow=True,
    tuning="Pool of 8 threads, prefetch of 100 jobs for each, results ignored, no gossip, mingle "
    "or heartbeat; there is no call for many jobs. Late acknowledgement is off, as shipped.",
    requirements=("celery[redis]==5.7.0",),
)
