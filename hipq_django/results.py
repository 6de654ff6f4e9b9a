"""What a worker holds in hand, and how it ended. Plain values between executor and scheduler."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hipq_django.models import Job, JobType, Queue
    from hipq_django.parts import Expects
    from hipq_django.redaction import Redactor
    from hipq_django.retries import Decision, Failure

from hipq_django.moments import started
from hipq_django.payloads import error_of
from hipq_django.retries import GiveUp, class_names
from hipq_django.states import Work
from hipq_django.steady import steady

RESERVATION_SECONDS = 0.1
"""How long a claim may wait for a thread, and how long ago it was last known to hold, at most."""

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
    worker_id: int | None
    """Whose hands it was put into: those of an earlier row of this process, perhaps."""

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
        job.worker_id,
    )


# Not frozen: that makes it three times as dear, and there is one for each job.
@dataclass(slots=True, eq=False)
class Claim:
    """A job in this worker's hands.

    `job` is the private copy that handlers see, and may change; `id` and `attempt` fence every
    later write. `response` is the answer for the response handler, `failure` what the retry
    handler is to decide about. Until a thread takes it up, a claim is only a reservation. All
    moments are those of the steady clock.
    """

    id: int
    attempt: int
    work: Work
    job: Job
    kept: Kept
    response: Any = field(default=None, repr=False)
    failure: Failure | None = None
    known_at: float = field(default_factory=steady)
    """When the database last said that the claim holds."""
    start_by: float = inf
    """It must not start later: its start was counted for no longer."""
    started_at: float = 0.0
    """When its handler began; 0 while it is a reservation."""
    is_known_as_started: bool = True
    """Whether the database knows that it is no reservation any more."""

    @property
    def is_stale(self) -> bool:
        """Whether too much may have happened to the job since the claim was known to hold."""
        return steady() > self.known_at + RESERVATION_SECONDS


class _Small:
    """What all other results share: next to nothing has to be written for them."""

    __slots__ = ()
    size = 0


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler, or the response handler, returned the job's result."""

    claim: Claim
    value: Any = field(repr=False)
    size: int = 0
    """Of the value as JSON, in characters."""

    @property
    def event(self) -> str:
        """What the log calls it."""
        return "succeeded"


@dataclass(frozen=True, slots=True)
class Waits(_Small):
    """The handler sent its request; the answer will come by another path."""

    claim: Claim

    @property
    def event(self) -> str:
        """What the log calls it."""
        return "waits"


@dataclass(frozen=True, slots=True)
class WaitsFor(_Small):
    """The handler sent several requests; `expects` says how many answers, or which parts."""

    claim: Claim
    expects: Expects

    @property
    def event(self) -> str:
        """What the log calls it."""
        return f"waits expects={self.expects}"


@dataclass(frozen=True, slots=True)
class Snoozed(_Small):
    """The job goes back for some seconds; this is no failure."""

    claim: Claim
    seconds: float
    reason: str

    @property
    def event(self) -> str:
        """What the log calls it."""
        return f"snoozed seconds={self.seconds:g}"


@dataclass(frozen=True, slots=True)
class Released(_Small):
    """The job did not start: it goes back to its place in the queue, and this is no failure."""

    claim: Claim
    reason: str

    @property
    def event(self) -> str:
        """What the log calls it."""
        return f"released reason={self.reason!r}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler, or the response handler, failed; `classes` are those of the exception."""

    claim: Claim
    error: Any
    traceback: str
    classes: list[str]

    @property
    def size(self) -> int:
        """How much has to be written, in characters, about."""
        return len(self.traceback)

    @property
    def event(self) -> str:
        """What the log calls it."""
        return f"failed error={self.error!r}"


@dataclass(frozen=True, slots=True)
class Decided(_Small):
    """The retry handler, or policy, has decided about a job in error.

    `changes` are the job's fields that the retry handler changed, already checked.
    """

    claim: Claim
    decision: Decision
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def event(self) -> str:
        """What the log calls it."""
        return f"decided decision={self.decision}"


Result = Succeeded | Waits | WaitsFor | Snoozed | Released | Failed | Decided


class Persisted(NamedTuple):
    """What became of results that were to be written."""

    written: Sequence[Result]
    lost: Sequence[Result]
    """Somebody else was first: the job is not this worker's any more."""
    locked: Sequence[Result]
    """Somebody has the row locked: to be tried again."""

    def joined(self, other: Persisted) -> Persisted:
        """Return both together."""
        return Persisted(*([*mine, *theirs] for mine, theirs in zip(self, other, strict=True)))


def refused(result: Result, error: Exception) -> Result:
    """Return the end of a job whose result the database refuses."""
    claim = result.claim
    value = result.value if isinstance(result, Succeeded) else None
    text = error_of(error, claim.kept.redactor.knowing(value))
    if claim.work is Work.DECISION:
        logger.error("job=%s attempt=%s decision refused: %s", claim.id, claim.attempt, text)
        return Decided(claim, GiveUp())
    return Failed(claim, text, "", class_names(type(error)))


def log_result(result: Result) -> None:
    """Log one line: which job, and what became of it."""
    if not logger.isEnabledFor(logging.INFO):
        return
    claim = result.claim
    logger.info(
        "job=%s type=%s key=%s attempt=%s event=%s",
        claim.id, claim.kept.job_type.name, claim.kept.job_key, claim.attempt, result.event,
    )  # fmt: skip
