"""How a worker process runs.

Imports no models: a spawned process reads it before Django's set-up.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How one worker process runs.

    `interval` is the longest time between polls in seconds, None for the usual one; `parent` the
    process id of a supervisor, 0 where there is none; `verbosity` that of Django's commands.
    """

    instance: str = "default"
    queues: tuple[str, ...] = ()
    threads: int = 8
    interval: float | None = None
    until_idle: bool = False
    verbosity: int = 1
    parent: int = 0
