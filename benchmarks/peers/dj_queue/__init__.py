"""dj_queue: Django's tasks in the database, after Solid Queue."""

from benchmarks.pins import DJANGO, PSYCOPG
from benchmarks.systems import System

SYSTEM = System(
    name="dj_queue",
    title="dj_queue",
    package="benchmarks.peers.dj_queue",
    store="postgres",
    workloads=("W1", "W2", "W3", "W4", "W4b", "W4c", "W5", "W7", "W21", "W22", "W24"),
    tuning="`dj_queue --mode async --only-work`, 8 threads, prefetch of 20 jobs for each, polls "
    "every 10 ms besides LISTEN and NOTIFY; in W21 and W22 the whole of it, whose scheduler asks "
    "every 10 ms for recurring tasks too.",
    requirements=("dj-queue==0.14.2", DJANGO, PSYCOPG),
)
