"""hipq_django on SQLite."""

from benchmarks.systems import System

SYSTEM = System(
    name="hipq_django_sqlite",
    title="hipq_django (SQLite)",
    package="benchmarks.hipq",
    store="sqlite",
    workloads=("W3b", "W3c", "W5c", "W5d", "W12", "W13", "W14", "W25", "W26", "W27"),
    tuning="As on PostgreSQL; WAL, `synchronous=NORMAL`, `transaction_mode` IMMEDIATE.",
    is_ours=True,
)
