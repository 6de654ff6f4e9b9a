"""Claims and their results: plain values between executor and scheduler."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, NamedTuple, TypeGuard

from hipq_django.database.clock import steady
from hipq_django.domain.class_names import class_names, with_text
from hipq_django.domain.parts import Expects
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.retries import Decision, Failure, GiveUp
from hipq_django.domain.serialization import error_of
from hipq_django.domain.states import NONE, Phase
from hipq_django.domain.validation import started
from hipq_django.engines.rows import raw_values
from hipq_django.models import Job, JobType, Queue

RESERVATION_SECONDS = 0.1
"""How long a claim may wait for a thread, and how long ago it was last known to hold, at most."""


class JobSnapshot(NamedTuple):
    """The values of a job for later writes; a copy, because a handler may change the job."""

    queue: Queue
    job_type: JobType
    job_key: str
    priority: int
    time_windows: tuple[str, ...]
    deadline: datetime
    timeout: float
    extended_seconds: float
    worker_id: int | None
    """Its owner when it was claimed, perhaps an earlier row of this process."""

    @property
    def start_time(self) -> datetime:
        """When the attempt was claimed; seldom needed, so it is calculated only then."""
        return started(self.deadline, self.timeout, self.extended_seconds)


def snapshot(job: Job, response: Any = None) -> JobSnapshot:
    """Return the values of a claimed job for later writes; its queue and type were read already.

    `response` is what its response handler gets. The code may take sensitive values out of what it
    is given, so the job learns them now.
    """
    values, related = raw_values(job)
    job_type = related["job_type"]
    if job_type.redactor.fields:
        job.learn(values["job_data"], response)
    return JobSnapshot(
        related["queue"],
        job_type,
        values["job_key"],
        values["priority"],
        tuple(values["time_windows"]),
        values["deadline"],
        values["timeout"],
        values["extended_seconds"],
        values["worker_id"],
    )


# Not frozen: that would cost three times as much, and there is one for each job.
@dataclass(slots=True, eq=False)
class Claim:
    """A job that this worker owns.

    `job` is the private copy that handlers see, and may change; `id` and `attempt` fence every
    later write. `response` is the answer for the response handler, `failure` is what the retry
    handler is to decide about. Until a thread starts it, a claim is only a reservation. All moments
    are those of the steady clock.
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
    """It must not start later, because its start was counted only until then."""
    started_at: float = 0.0
    """When its handler began; 0 while it is a reservation."""
    is_known_as_started: bool = True
    """Whether the start is written, so that it is no reservation any more."""
    extra: Any = field(default=None, repr=False)
    """What a companion has beside the job; its results are written by the companion."""

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of a log line that identify job and attempt."""
        job = self.snapshot
        return {
            "job_id": self.id,
            "job_type": job.job_type.name,
            "job_key": job.job_key,
            "queue": job.queue.name,
            "attempt": self.attempt,
        }

    @property
    def redactor(self) -> Redactor:
        """What masks the sensitive values that its code was given."""
        return self.job.redactor

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


class _Small:
    """The base of all other results: they need hardly any space."""

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
class Ended(_Small):
    """The handler has made the job final itself, by `finishing`: nothing is left to be written."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Waits(_Small):
    """The handler sent its request; the answer will come through another channel."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class WaitsFor(_Small):
    """The handler sent several requests; `expects` says how many answers, or which parts."""

    claim: Claim
    expects: Expects


@dataclass(slots=True, eq=False)
class Snoozed(_Small):
    """The job goes back for some seconds; this does not count as a failure.

    It has `run` if its code ended the attempt so; otherwise that was not called.
    """

    claim: Claim
    seconds: float
    reason: str
    run: bool = False


@dataclass(frozen=True, slots=True)
class Released(_Small):
    """The job did not start: it goes back to its place, which does not count as a failure."""

    claim: Claim
    reason: str


@dataclass(slots=True, eq=False)  # not frozen, as above
class Failed:
    """The handler, or the response handler, failed; `classes` are those of the exception.

    `exception` is what was raised, for logs and signals, without the local variables of its frames.
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

    `changes` are the job's fields that the retry handler changed, already checked; `exception` and
    `traceback` are of what it raised instead, as above. `why` says why the job is given up, if
    nobody has decided that.
    """

    claim: Claim
    decision: Decision
    changes: dict[str, Any] = field(default_factory=dict)
    exception: BaseException | None = field(default=None, repr=False)
    traceback: str = field(default=NONE, repr=False)
    why: str = NONE


Result = Succeeded | Ended | Waits | WaitsFor | Snoozed | Released | Failed | Decided


def is_plain_success(result: Result) -> TypeGuard[Succeeded]:
    """Return whether a job succeeded that has nothing beside it to be written."""
    return isinstance(result, Succeeded) and result.claim.extra is None


class Persisted(NamedTuple):
    """What became of the results."""

    written: Sequence[Result]
    dropped: Sequence[Result]
    """Another process was first: this worker no longer owns the job."""
    locked: Sequence[Result]
    """Another transaction has locked the row: to be tried again."""
    decided: Sequence[Decided] = ()
    """The immediate decisions about failures among the written results."""
    finished: Collection[int] = ()
    """The ids of jobs that are known to be final, and to have succeeded; others may be, too."""


def all_of(parts: Iterable[Persisted]) -> Persisted:
    """Return what became of results that are written in parts, all in one transaction."""
    columns = zip(*parts, strict=True)
    return Persisted(*([one for part in column for one in part] for column in columns))


def refused(result: Result, error: Exception) -> Result:
    """Return the result of a job whose own result the database refuses."""
    claim = result.claim
    text, masked = refusal(result, error)
    if claim.phase is Phase.DECISION:
        return Decided(claim, GiveUp(), why=f"the database refuses what was decided: {text}")
    return Failed(claim, text, "", class_names(type(error)), masked)


def refusal(result: Result, error: BaseException) -> tuple[str, BaseException]:
    """Return what is stored of why a result is not written, and what logs may have of it.

    It is masked at once: it may quote the result, which is stored nowhere.
    """
    value = result.value if isinstance(result, Succeeded) else None
    redactor = result.claim.redactor.knowing(value)
    text = redactor.mask_text(error_of(error))
    if not redactor.fields:
        return text, error
    text = text.partition("\n")[0]  # the rest may quote the row, with a part of a value
    return text, with_text(error, text)
