"""What a worker has in flight, and how it ended. Plain values between executor and scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, NamedTuple

from hipq_django import events
from hipq_django.database.clock import steady
from hipq_django.domain.parts import Expects
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.retries import Decision, Failure, GiveUp, class_names
from hipq_django.domain.serialization import error_of
from hipq_django.domain.states import Phase
from hipq_django.domain.validation import started
from hipq_django.engines.rows import raw_values
from hipq_django.models import Job, JobType, Queue

RESERVATION_SECONDS = 0.1
"""How long a claim may wait for a thread, and how long ago it was last known to hold, at most."""


class JobSnapshot(NamedTuple):
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
    """Who owned it when it was claimed: an earlier row of this process, perhaps."""

    @property
    def start_time(self) -> datetime:
        """When the attempt was claimed; few ask, so it is not worked out for each claim."""
        return started(self.deadline, self.timeout, self.extended_seconds)


def snapshot(job: Job) -> JobSnapshot:
    """Return what is written of a claimed job later on; its queue and type were read already."""
    values, related = raw_values(job)
    job_type = related["job_type"]
    redactor = job_type.redactor
    return JobSnapshot(
        related["queue"],
        job_type,
        values["job_key"],
        values["priority"],
        tuple(values["time_windows"]),
        values["deadline"],
        values["timeout"],
        values["extended_seconds"],
        redactor.knowing(values["job_data"]) if redactor.fields else redactor,
        values["worker_id"],
    )


# Not frozen: that makes it three times as dear, and there is one for each job.
@dataclass(slots=True, eq=False)
class Claim:
    """A job that this worker owns.

    `job` is the private copy that handlers see, and may change; `id` and `attempt` fence every
    later write. `response` is the answer for the response handler, `failure` what the retry
    handler is to decide about. Until a thread takes it up, a claim is only a reservation. All
    moments are those of the steady clock.
    """

    id: int
    attempt: int
    phase: Phase
    job: Job
    snapshot: JobSnapshot
    response: Any = field(default=None, repr=False)
    failure: Failure | None = None
    known_at: float = field(default_factory=lambda: steady())  # noqa: PLW0108 - tests replace it
    """When the database last said that the claim holds."""
    start_by: float = inf
    """It must not start later: its start was counted for no longer."""
    started_at: float = 0.0
    """When its handler began; 0 while it is a reservation."""
    is_known_as_started: bool = True
    """Whether the database knows that it is no reservation any more."""

    @property
    def fields(self) -> dict[str, Any]:
        """What says in a log line which attempt of which job it is about."""
        job = self.snapshot
        return {
            "job_id": self.id,
            "job_type": job.job_type.name,
            "job_key": job.job_key,
            "queue": job.queue.name,
            "attempt": self.attempt,
        }

    def start_time(self, now: datetime) -> datetime:
        """Return when its handler began, by the clock whose time is `now`."""
        if not self.started_at:
            return self.snapshot.start_time
        return now - timedelta(seconds=steady() - self.started_at)

    @property
    def is_fresh(self) -> bool:
        """Whether it starts in time, and was known to hold at that moment, or just before."""
        began = self.started_at
        return began <= self.known_at + RESERVATION_SECONDS and began <= self.start_by

    @property
    def is_stale(self) -> bool:
        """Whether too much may have happened to the job since the claim was known to hold."""
        return steady() > self.known_at + RESERVATION_SECONDS


class _Small:
    """What all other results share: next to nothing has to be written for them."""

    __slots__ = ()
    size = 0


@dataclass(slots=True, eq=False)  # not frozen, as above
class Succeeded:
    """The handler, or the response handler, returned the job's result."""

    claim: Claim
    value: Any = field(repr=False)
    size: int = 0
    """Of the value as JSON, in characters."""


@dataclass(frozen=True, slots=True)
class Waits(_Small):
    """The handler sent its request; the answer will come by another path."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class WaitsFor(_Small):
    """The handler sent several requests; `expects` says how many answers, or which parts."""

    claim: Claim
    expects: Expects


@dataclass(frozen=True, slots=True)
class Snoozed(_Small):
    """The job goes back for some seconds; this is no failure."""

    claim: Claim
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Released(_Small):
    """The job did not start: it goes back to its place in the queue, and this is no failure."""

    claim: Claim
    reason: str


@dataclass(slots=True, eq=False)  # not frozen, as above
class Failed:
    """The handler, or the response handler, failed; `classes` are those of the exception.

    `exception` is what was raised, for logs and signals, without the values of sensitive fields
    and without what its frames held.
    """

    claim: Claim
    error: Any
    traceback: str
    classes: tuple[str, ...]
    exception: BaseException | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """How much has to be written, in characters, about."""
        return len(self.traceback)


@dataclass(slots=True, eq=False)  # not frozen, as above
class Decided(_Small):
    """The retry handler, or policy, has decided about a job in error.

    `changes` are the job's fields that the retry handler changed, already checked.
    """

    claim: Claim
    decision: Decision
    changes: dict[str, Any] = field(default_factory=dict)


Result = Succeeded | Waits | WaitsFor | Snoozed | Released | Failed | Decided


class Persisted(NamedTuple):
    """What became of results that were to be written."""

    written: Sequence[Result]
    lost: Sequence[Result]
    """Somebody else was first: the job is not this worker's any more."""
    locked: Sequence[Result]
    """Somebody has the row locked: to be tried again."""
    decided: Sequence[Decided] = ()
    """What was decided at once about failures among those written."""

    def joined(self, other: Persisted) -> Persisted:
        """Return both together."""
        pairs = zip(self, other, strict=True)
        return Persisted(*([*mine, *theirs] for mine, theirs in pairs))  # type: ignore[arg-type]  # each with its own kind


def refused(result: Result, error: Exception) -> Result:
    """Return the end of a job whose result the database refuses."""
    claim = result.claim
    value = result.value if isinstance(result, Succeeded) else None
    text = error_of(error, claim.snapshot.redactor.knowing(value))
    if claim.phase is Phase.DECISION:
        events.error("decision_refused", text, **claim.fields)
        return Decided(claim, GiveUp())
    return Failed(claim, text, "", class_names(type(error)), error)
