"""Handlers for real worker processes: what they do is written to files that the tests read."""

import atexit
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import hipq_django as hipq
from hipq_django.domain.retries import RetryPolicy
from hipq_django.models import Job, Queue

POLL_SECONDS = 0.005


@hipq.job_type("quick", queue="chaos", retry=hipq.Exponential(first_seconds=0, max_attempts=50))
def quick(job: Job) -> int:
    """Work for a moment and return the job's number."""
    time.sleep(job.job_data.get("seconds", 0))
    return int(job.job_data["number"])


@hipq.job_type("stumbling", queue="stumbling", retry=hipq.Fixed(seconds=0, max_attempts=2))
def stumbling(job: Job) -> None:
    """Raise the first time."""
    if job.attempt == 1:
        raise OSError("a stumble")


@hipq.job_type("held", queue="held")
def held(job: Job) -> str:
    """Say that it runs, then wait until the test lets it go."""
    note(job, "begin")
    while not Path(job.job_data["gate"]).exists():
        time.sleep(POLL_SECONDS)
    return "let go"


@hipq.job_type("timed", queue="shared")
def timed(job: Job) -> None:
    """Note when it begins and when it ends."""
    note(job, "begin")
    time.sleep(job.job_data["seconds"])
    note(job, "end")


@hipq.job_type("killer", queue="held")
def killer(job: Job) -> None:
    """Kill the worker that runs it, as the kernel does when memory runs out."""
    note(job, "begin")
    os.kill(os.getpid(), signal.SIGKILL)


def steady(job: Job) -> None:
    """Work for a while, and end well."""
    time.sleep(job.job_data["seconds"])


def declare_killer_and_innocent(name: str, policy: RetryPolicy | None) -> None:
    """Declare the types `killer_NAME` and `steady_NAME`, with the same policy."""
    for handler in (killer.handler, steady):
        kind = handler.__name__
        hipq.job_type(f"{kind}_{name}", queue="suspects", retry=policy)(handler)


declare_killer_and_innocent("none", None)
declare_killer_and_innocent("fixed", hipq.Fixed(seconds=0, max_attempts=5))
declare_killer_and_innocent("exponential", hipq.Exponential(first_seconds=0.1, max_attempts=5))


@hipq.job_type("exiting", queue="held", retry=hipq.Never())
def exiting(job: Job) -> None:
    """End its worker as if all were well."""
    os._exit(0)


@hipq.job_type("leaving", queue="held")
def leaving(job: Job) -> None:
    """Leave something behind that never ends, and a function for the end of the process."""
    forever = threading.Event().wait
    if job.job_data["left"] == "thread":
        ThreadPoolExecutor(1, "mine").submit(forever)
    else:
        atexit.register(forever)
    atexit.register(Path(job.job_data["notes"]).touch)


@hipq.job_type("once", queue="held", retry=hipq.Never())
def once(job: Job) -> None:
    """Note that it ran; it never wants to run again."""
    note(job, "begin")


def never_return(queue: Queue, now: datetime, running: Any, candidates: Any) -> list[hipq.Run]:
    """Note that it was asked, and do not return, whatever is done against it."""
    Path(candidates[0].job_data["asked"]).touch()
    while True:
        try:
            time.sleep(POLL_SECONDS)
        except BaseException:
            continue


@hipq.job_type("asking", queue="asking", timeout=60)
def asking(job: Job) -> object:
    """Note the request and wait for the answer."""
    note(job, "request")
    return hipq.WAIT


@asking.on_response
def asked(job: Job, response: object) -> object:
    """Note the answer."""
    note(job, "response")
    return {"answered": response}


@hipq.job_type("forks", queue="forks")
def forks(job: Job) -> str:
    """Fork some processes and leave them while they are busy, as `with Pool()` does."""
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map_async(time.sleep, [60] * 6)
        time.sleep(0.2)  # they are at it
    return "left"


@hipq.job_type("forks_by_hand", queue="forks")
def forks_by_hand(job: Job) -> int:
    """Fork a process that comes to the end of this function, or exits, and wait for it."""
    pid = os.fork()
    if pid == 0:
        if job.job_data["code"]:
            sys.exit(job.job_data["code"])
        return 0
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def note(job: Job, what: str) -> None:
    """Append one line to the job's notes; a write of one short line is atomic."""
    line = f"{time.monotonic():.6f} {what} {job.pk} {job.throttle_factor:f} {os.getpid()}\n"
    with Path(job.job_data["notes"]).open("a") as notes:
        notes.write(line)


@hipq.task(name="member", queue="chaos", retry=hipq.Exponential(first_seconds=0, max_attempts=50))
def member(number: int) -> int:
    """Be one of several that another job waits for, at work long enough to be killed at it."""
    time.sleep(0.1)
    return number


@hipq.task(name="joined", queue="chaos", retry=hipq.Exponential(first_seconds=0, max_attempts=50))
def joined(inputs: list[int] = hipq.INPUTS) -> int:
    """Add up what the jobs before have returned."""
    return sum(inputs)


@hipq.task(name="tick", queue="chaos", retry=hipq.Exponential(first_seconds=0, max_attempts=50))
def tick() -> None:
    """Be made by a schedule."""


if "HIPQ_TEST_WITH_SCHEDULE" in os.environ:  # a release that declares it, beside one that does not

    @hipq.task(name="each second", queue="chaos", schedule=hipq.Every(seconds=1, overlap="allow"))
    def each_second() -> None:
        """Be made by a schedule that a deploy removes and brings back."""
