"""The arguments and results of engines, and the values that all of them write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from hipq_django.domain.states import NONE, Outcome, Phase, State
from hipq_django.models import Job, Queue

CLAIMED: dict[str, Any] = {
    "state": State.RUNNING,
    "error": NONE,
    "phase": Phase.REQUEST,
    "progress": 0.0,
    "progress_message": NONE,
    "extended_seconds": 0.0,
}
"""What each claim writes; worker, attempt and times differ."""

SUCCEEDED: dict[str, Any] = {
    "outcome": Outcome.SUCCEEDED,
    "has_pending_answer": False,
    "progress": 100.0,
}
"""What is written of each job that succeeds, besides its state and its result."""


class QueueWork(NamedTuple):
    """A queue and its work."""

    queue: Queue
    first_rank: int | None
    """The rank of the first due job that fits, or a lower one; None: there is none."""
    has_response: bool
    has_error: bool
    is_hungry: bool = False
    """Whether jobs are due, and in this shard there is no room for the first one."""
    needs_check: bool = False
    """Whether its first due job is not claimable in SQL, so that it is checked in Python."""


class ScanBounds(NamedTuple):
    """Where the probe of a queue begins and ends."""

    high_water_mark: int
    """A rank that no due job exceeds: it stops the scan before jobs scheduled for later."""
    is_strict: bool
    """Whether order is strict: no job may overtake the first due one."""
    low_water_mark: int
    """A rank at which the scan begins."""


class ClaimRequest(NamedTuple):
    """How much is claimed at once."""

    room: int
    """How many jobs start at once; those behind are claimed ahead."""
    limit: int
    """How many jobs in total."""
    types: Sequence[int]
    """The ids of the job types with code here; others are not claimable in SQL."""


class DuePage(NamedTuple):
    """The first due jobs of a limited queue, and what decides which of them may start.

    Without jobs the other values do not count.
    """

    jobs: list[Job]
    load: Decimal
    """The sum of the factors of the queue's running jobs."""
    has_critical: bool
    """Whether there are due jobs of factor 0, here or further behind."""


class Which(NamedTuple):
    """Which due jobs are read, and whether they are locked; by default the first ones, locked."""

    after: tuple[int, int] | None = None
    """Only those behind this rank and id."""
    critical: bool = False
    """Only those of factor 0."""
    without_types: Sequence[int] = ()
    without_suspects: bool = False
    """No suspects: none that may have killed its worker."""
    locks: bool = True
    """Whether to lock them, and skip those that others have locked."""


FIRST = Which()

Finished = tuple[int, int, Any, bool]
"""Id, attempt and result of a job; whether it was a request, so that an answer may be quicker."""


class Failing(NamedTuple):
    """An attempt that failed in a worker."""

    id: int
    attempt: int
    is_request: bool
    """Whether it was a request, so that an answer may be quicker."""
    state: str
    """Error, or final where it is given up at once."""
    outcome: str
    is_kept: bool
    """Whether the worker keeps ownership of the error, because the decision is written next."""
    error: Any
    classes: tuple[str, ...]
    traceback: str
    start_time: datetime
    failures: int
    """How many of the job's attempts failed, including this one; 0 if the database is to count."""


class Concluded(NamedTuple):
    """What follows the error of a job."""

    id: int
    attempt: int
    state: str
    outcome: str
    scheduled_run_time: datetime | None
    """None, as the rank, where the job ends."""
    rank: int | None


class EarlyPlace(NamedTuple):
    """An early answer, by its place in the order of keys."""

    job_type: str = ""
    job_key: str = ""
    answer_id: int = 0


class SettledJob(NamedTuple):
    """A job that was settled by a response, and the answer that was stored of it."""

    answer_id: int
    job_id: int
    job_key: str
    attempt: int
    queue_id: int


class StaleJobTypeError(Exception):
    """The rows from which a job was made have changed since they were read."""
