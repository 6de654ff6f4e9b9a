"""Job types whose jobs fail for good, each in another way."""

import os
import signal
from typing import Any

import hipq_django as hipq
from hipq_django.domain.retries import Decision, Failure
from hipq_django.models import Job


class DeclinedError(Exception):
    """What the bank says; it cannot be made from a text alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")


def decline(job: Job) -> None:
    """Raise."""
    raise DeclinedError(job.pk, "no funds")


def wait(job: Job) -> Any:
    """Wait for an answer."""
    return hipq.WAIT


class Own:
    """A policy of the project."""

    def decide(self, failure: Failure) -> Decision:
        """Try once more."""
        return hipq.RetryIn(0) if failure.count == 1 else hipq.GiveUp()


class Broken:
    """A policy of the project that raises."""

    def decide(self, failure: Failure) -> Decision:
        """Raise."""
        raise LookupError("no such policy")


hipq.job_type("never", queue="heard", retry=hipq.Never())(decline)
hipq.job_type("fixed", queue="heard", retry=hipq.Fixed(0, max_attempts=2))(decline)
hipq.job_type("own_policy", queue="heard", retry=Own())(decline)
hipq.job_type("broken_policy", queue="heard", retry=Broken())(decline)
hipq.job_type("asks", queue="heard")(decline).on_error(lambda job: None)
hipq.job_type("asks_in_vain", queue="heard")(decline).on_error(lambda job: job.job_data["no"])
hipq.job_type("secret", queue="heard", sensitive=["card"], retry=hipq.Never())(decline)
hipq.job_type("late", queue="heard", timeout=0.1, retry=hipq.Never())(wait)
hipq.job_type("also_late", queue="heard", timeout=0.1)(wait).on_error(lambda job: None)
hipq.job_type("refused", queue="heard", retry=hipq.Never())(wait)


@hipq.job_type("killer", queue="heard", retry=hipq.Never())
def killer(job: Job) -> None:
    """Kill the worker that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)
