"""How a worker process runs.

Imports no models: a spawned process reads it before Django's set-up.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker process runs: what the command's options of the same names say.

    `queues` are those that it serves, none for all but those of `exclude`; `interval` is the
    longest time between polls in seconds, None for the usual one; `drain_seconds` how long it may
    finish what is running once it was told to stop, None without a bound; `max_jobs` and
    `max_memory`, in megabytes, after how much it makes way for a new process, None for never;
    `parent` the process id of a supervisor, 0 where there is none; `verbosity` that of Django's
    commands.
    """

    instance: str = "default"
    queues: Sequence[str] = ()
    exclude: Sequence[str] = ()
    threads: int = 8
    interval: float | None = None
    until_idle: bool = False
    drain_seconds: float | None = None
    max_jobs: int | None = None
    max_memory: int | None = None
    verbosity: int = 1
    parent: int = 0
