"""How a worker process runs.

Imports no models: a spawned process reads it before Django's set-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker process runs; most fields are the command's options of the same names.

    `shard` is the alias of the database that it serves, or '' without SHARDS;
    `queues` are the served ones, or empty for all except those of `exclude`; `interval` is the
    longest time between polls in seconds, None for the default; `drain_seconds` is how long running
    jobs may take to finish once it was told to stop, None for no bound; `max_jobs` and
    `max_memory`, in megabytes, say when it is recycled, None for never; `parent` is the process id
    of a supervisor, 0 if there is none; `verbosity` is what `-v` gives, None if it is not given.
    """

    instance: str = "default"
    shard: str = ""
    queues: Sequence[str] = ()
    exclude: Sequence[str] = ()
    threads: int = 8
    interval: float | None = None
    until_idle: bool = False
    drain_seconds: float | None = None
    max_jobs: int | None = None
    max_memory: int | None = None
    verbosity: int | None = None
    parent: int = 0
