"""Prefect."""

from benchmarks.systems import System

SYSTEM = System(
    name="prefect",
    title="Prefect (SQLite)",
    package="benchmarks.peers.prefect",
    store="sqlite",
    workloads=("W14",),
    sizes={"W14": {"pipelines": 200}},
    tuning="A flow of three tasks, `async def`; eight flows at a time in the worker's own process, "
    "because a process for each run, as its deployments have it, takes seconds. One API server on "
    "SQLite, its default: on PostgreSQL it needs the extension pg_trgm, which the one that is "
    "started here lacks. No analytics, no log lines sent. A run is known when it begins, not "
    "before, and repeated by hand after a crash.",
    requirements=("prefect==3.9.1",),
)
