"""What a worker holds in hand, and how it ended. Plain values between executor and scheduler."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from hipq_django.models import Job, JobType, Queue
    from hipq_django.parts import Expects
    from hipq_django.redaction import Redactor
    from hipq_django.retries import Decision, Failure
    from hipq_django.states import Work

from hipq_django.moments import started
from hipq_django.payloads import error_of
from hipq_django.retries import class_names

logger = logging.getLogger("hipq_django")


class Kept(NamedTuple):
    """What is written of a job later on; its own copy, because a handler may change the job."""

    queue: Queue
    job_type: JobType
    job_key: str
    priority: int
    time_windows: tuple[str, ...]
    deadline: datetime
    timeout: float
    extended_seconds: float
    redactor: Redactor

    @property
    def start_time(self) -> datetime:
        """When the attempt was claimed; few ask, so it is not worked out for each claim."""
        return started(self.deadline, self.timeout, self.extended_seconds)


def keep(job: Job) -> Kept:
    """Return what is written of a claimed job later on; its queue and type were read already."""
    related = job._state.fields_cache  # at a tenth of the cost of the two fields' descriptors
    job_type = related["job_type"]
    return Kept(
        related["queue"],
        job_type,
        job.job_key,
        job.priority,
        tuple(job.time_windows),
        job.deadline,
        job.timeout,
        job.extended_seconds,
        job_type.redactor.knowing(job.job_data),
    )


# Not frozen: that makes it three times as dear, and there is one for each job.
@dataclass(slots=True, eq=False)
class Claim:
    """A job in this worker's hands.

    `job` is the private copy that handlers see, and may change; `id` and `attempt` fence every
    later write. `response` is the answer for the response handler, `failure` what the retry
    handler is to decide about.
    """

    id: int
    attempt: int
    work: Work
    job: Job
    kept: Kept
    response: Any = field(default=None, repr=False)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler, or the response handler, returned the job's result."""

    claim: Claim
    value: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Waits:
    """The handler sent its request; the answer will come by another path."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """The handler sent several requests; `expects` says how many answers, or which parts."""

    claim: Claim
    expects: Expects


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The job goes back for some seconds; this is no failure."""

    claim: Claim
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler, or the response handler, failed; `classes` are those of the exception."""

    claim: Claim
    error: Any
    traceback: str
    classes: list[str]


@dataclass(frozen=True, slots=True)
class Decided:
    """The retry handler, or policy, has decided about a job in error.

    `changes` are the job's fields that the retry handler changed, already checked.
    """

    claim: Claim
    decision: Decision
    changes: dict[str, Any] = field(default_factory=dict)


Result = Succeeded | Waits | WaitsFor | Snoozed | Failed | Decided


def refused(result: Result, error: Exception) -> Failed:
    """Return the failure of a job whose result the database refuses."""
    value = result.value if isinstance(result, Succeeded) else None
    redactor = result.claim.kept.redactor.knowing(value)
    return Failed(result.claim, error_of(error, redactor), "", class_names(type(error)))


def log_result(result: Result) -> None:
    """Log one line: which job, and what became of it."""
    if not logger.isEnabledFor(logging.INFO):
        return
    claim = result.claim
    logger.info(
        "job=%s type=%s key=%s attempt=%s event=%s",
        claim.id, claim.kept.job_type.name, claim.kept.job_key, claim.attempt, _event_of(result),
    )  # fmt: skip


def _event_of(result: Result) -> str:
    if isinstance(result, Failed):
        return f"failed error={result.error!r}"
    if isinstance(result, Decided):
        return f"decided decision={result.decision}"
    if isinstance(result, Snoozed):
        return f"snoozed seconds={result.seconds:g}"
    if isinstance(result, WaitsFor):
        return f"waits expects={result.expects}"
    return "waits" if isinstance(result, Waits) else "succeeded"
