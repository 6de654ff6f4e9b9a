"""hipq_django on PostgreSQL, with the workloads that only it has."""

from benchmarks.systems import System

SYSTEM = System(
    name="hipq_django",
    title="hipq_django",
    package="benchmarks.hipq",
    store="postgres",
    workloads=(
        *("W1", "W2", "W3", "W3b", "W3c", "W3d", "W4", "W4b", "W4c"),
        *("W5", "W5b", "W5c", "W5d"),
        *("W6", "W7", "W7b", "W8", "W9", "W10", "W11"),
        *("W13", "W14", "W15", "W16", "W17", "W18"),
        *("W20", "W21", "W22", "W23", "W24", "W26", "W27", "W28"),
    ),
    tuning="`hipq_worker` as shipped: 8 threads.",
    is_ours=True,
)
