"""The handlers that are measured: they do nothing, or write down when they ran."""

import time
from pathlib import Path
from typing import Any

import hipq_django as hipq


@hipq.job_type("noop")
def noop(job: Any) -> None:
    """Do nothing."""


@hipq.job_type("stamp", queue="latency")
def stamp(job: Any) -> float:
    """Return the moment at which the handler started."""
    return time.time()


@hipq.job_type("weighed", queue="limited")
def weighed(job: Any) -> None:
    """Work for a moment and write down from when to when, with the weight."""
    began = time.monotonic()
    time.sleep(job.job_data["seconds"])
    with Path(job.job_data["notes"]).open("a") as notes:
        notes.write(f"{began:.6f} {time.monotonic():.6f} {job.throttle_factor:f}\n")
