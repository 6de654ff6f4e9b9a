"""The handlers: each does what its job's data says, and writes down that it ran."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from django.db import connection

import hipq_django as hipq
from chaos.project.notes import noted
from hipq_django.models import Job

PATIENT = hipq.Exponential(first_seconds=0.1, cap_seconds=1, max_attempts=100)
"""So many attempts that no fault uses them up."""
THREE_TRIES = hipq.Fixed(0.2, max_attempts=3)


class PlannedError(Exception):
    """What a handler raises because its job's data says so."""


def _result(job: Job) -> dict[str, Any]:
    return {"key": job.job_data["key"], "attempt": job.attempt}


def _work(job: Job) -> dict[str, Any]:
    with noted(job):
        time.sleep(job.job_data.get("seconds", 0))
        if job.attempt <= job.job_data.get("fails", 0):
            raise PlannedError("as planned")
    return _result(job)


def _raise(job: Job) -> None:
    with noted(job):
        raise PlannedError("as planned, each time")


hipq.job_type("plain", queue="quick")(_work)
hipq.job_type("bystander", queue="quick")(_work)
hipq.job_type("slow_among_quick", queue="quick", retry=PATIENT)(_work)
hipq.job_type("raising", queue="quick", retry=PATIENT)(_work)
hipq.job_type("never", queue="quick", retry=hipq.Never())(_work)
hipq.job_type("slow", queue="slow", retry=PATIENT)(_work)
hipq.job_type("limited", queue="limited", retry=PATIENT)(_work)
hipq.job_type("rated", queue="rated", retry=PATIENT)(_work)
hipq.job_type("tenant", queue="tenants", retry=PATIENT)(_work)
hipq.job_type("pausing", queue="pausing", retry=PATIENT)(_work)
hipq.job_type("hopeless", queue="quick", retry=THREE_TRIES)(_raise)
hipq.job_type("storming", queue="storm", retry=THREE_TRIES)(_raise)


@hipq.job_type("receipt", queue="quick", retry=PATIENT)
def receipt(job: Job) -> dict[str, Any]:
    """Write a row of the project's own, which must be there if the job succeeded."""
    with noted(job), connection.cursor() as cursor:
        cursor.execute("INSERT INTO chaos_receipt (name) VALUES (%s)", [job.job_data["key"]])
    return _result(job)


@hipq.job_type("payment", queue="bank", retry=PATIENT)
def payment(job: Job) -> object:
    """Send the request, which is the line in the ledger, and wait for the answer."""
    with noted(job):
        return hipq.WAIT


@hipq.job_type("payment_checked", queue="bank", retry=PATIENT)
def payment_checked(job: Job) -> object:
    """Do the same; the answer is looked at by a handler of its own."""
    with noted(job):
        return hipq.WAIT


@payment_checked.on_response
def checked(job: Job, response: Any) -> dict[str, Any]:
    """Return what was answered."""
    with noted(job, "response", "responded"):
        return {"checked": response}


# Handlers that do harm


@hipq.job_type("killer", queue="quick")
def killer(job: Job) -> None:
    """End the process that runs it."""
    with noted(job):
        time.sleep(job.job_data["seconds"])
        if job.job_data["how"] == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(int(job.job_data["how"].rpartition(" ")[2]))


@hipq.job_type("bulky", queue="bulky")
def bulky(job: Job) -> str:
    """Return a result of many bytes."""
    with noted(job):
        return "x" * int(job.job_data["bytes"])


class BadText(Exception):  # noqa: N818 - it is the text that is bad
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise SystemExit(1)


class BadSnooze(hipq.Snooze):
    """A Snooze whose author forgot how long."""

    def __init__(self) -> None:
        Exception.__init__(self)


@hipq.job_type("mischief", queue="quick")
def mischief(job: Job) -> None:
    """Misbehave as the job's data says."""
    with noted(job):
        if job.job_data["how"] == "open transaction":
            connection.set_autocommit(False)
            connection.cursor().execute("SELECT 1")
            return
        if job.attempt > 1:
            return  # a snooze without an end would come again and again
        raise {
            "KeyboardInterrupt": KeyboardInterrupt(),
            "SystemExit": SystemExit(3),
            "bad text": BadText(),
            "bad snooze": BadSnooze(),
        }[job.job_data["how"]]
