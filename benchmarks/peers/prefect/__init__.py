"""Prefect."""

from benchmarks.systems import System

SYSTEM = System(
    name="prefect",
    title="Prefect (SQLite)",
    package="benchmarks.peers.prefect",
    store="sqlite",
    workloads=("W14",),
    sizes={"W14": {"pipelines": 200}},
    tuning="A flow of three tasks, `async def`; eight at a time in the worker's own process. "
    "One API server on SQLite, its default; no analytics, no log lines sent.",
    requirements=("prefect==3.9.1",),
)
