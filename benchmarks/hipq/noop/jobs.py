"""The handlers of the measured job types."""

import time
from pathlib import Path
from typing import Any

import hipq_django as hipq
from benchmarks.measuring.handlers import handle, tally
from benchmarks.measuring.tally import Stamps


@hipq.job_type("work")
def work(job: Any) -> None:
    """Do what all systems do."""
    handle(job.job_data["kind"], job.job_data["number"])


@hipq.job_type("declined", retry=hipq.Never())
def declined(job: Any) -> None:
    """Fail for good."""
    handle("raise", job.job_data["number"])


@hipq.job_type("thrice", retry=hipq.Fixed(seconds=0, max_attempts=3))
def thrice(job: Any) -> None:
    """Fail, and be tried three times at once."""
    handle("raise_thrice", job.job_data["number"])


@hipq.task
def plain(kind: str, number: int) -> None:
    """Do the same as a plain function."""
    handle(kind, number)


@hipq.task(instance="typed")
def typed(kind: str, number: int) -> None:
    """Do the same with arguments whose types are checked."""
    handle(kind, number)


@hipq.job_type("tick")
def tick(job: Any) -> None:
    """Write down when the job of a second began."""
    handle("stamp", int(job.due_time.timestamp()) % Stamps.NUMBERS)


@hipq.job_type("ask", queue="answers")
def ask(job: Any) -> Any:
    """Wait for an answer from outside."""
    tally().count()
    return hipq.WAIT


@hipq.job_type("weighed", queue="limited")
def weighed(job: Any) -> None:
    """Work for a moment and write down from when to when, with the weight."""
    began = time.monotonic()
    time.sleep(job.job_data["seconds"])
    with Path(job.job_data["notes"]).open("a") as notes:
        notes.write(f"{began:.6f} {time.monotonic():.6f} {job.throttle_factor:f}\n")
    tally().count()
