"""The floor: psycopg and plain statements."""

from benchmarks.systems import System

SYSTEM = System(
    name="floor_psycopg",
    title="floor: psycopg",
    package="benchmarks.floors.postgres",
    store="postgres",
    workloads=("W1", "W2", "W3", "W4", "W5", "W7"),
    tuning="No queue: INSERT; COPY; batches of 500 claimed by SELECT … SKIP LOCKED and UPDATE, "
    "finished by one UPDATE; LISTEN and NOTIFY for the latency.",
)
