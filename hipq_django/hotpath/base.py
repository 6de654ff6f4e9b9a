"""What both implementations offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from hipq_django.models import Job, Queue, Worker


class Busy(NamedTuple):
    """A queue and what there is to do in it; `has_due` counts only where there is room."""

    queue: Queue
    has_due: bool
    has_response: bool
    has_error: bool


Finished = tuple[int, int, Any, bool]
"""Id, attempt and result of a job; whether it was a request, so that an answer may be quicker."""


class HotPath(Protocol):
    """The statements; each method is one, or a few, whatever the size of the batch."""

    def look(
        self,
        instance: str,
        names: Sequence[str],
        now: datetime,
        bounds: Mapping[int, int],
    ) -> list[Busy]:
        """Return the queues by id and what each has to do; no locks.

        A limited queue without room has nothing due but critical jobs.

        `bounds` are ranks that no due job of a queue exceeds, for the queues that are known
        already: they stop the look before the rows of the future.
        """

    def load(self, queue: Queue) -> Decimal:
        """Return the sum of the factors of the queue's running jobs."""

    def due(
        self,
        queue: Queue,
        now: datetime,
        limit: int,
        *,
        after: tuple[int, int] | None = None,
        critical: bool = False,
        without_types: Sequence[int] = (),
    ) -> list[Job]:
        """Lock and return due jobs in their order, passing over rows that others have locked.

        `after`: only those behind this rank and id. `critical`: only those of factor 0.
        """

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> None:
        """Write that these locked waiting jobs run, as their copies say."""

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """Make jobs final that are still the worker's and were not answered; return their ids.

        It may return fewer than it could have: what is left is written with more care.
        """

    def let_go(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        """Let jobs (id, attempt) wait for their answer; return the ids, or fewer, as `finish`."""

    def finish_answered(self, responses: Mapping[int, Any], now: datetime) -> bool:
        """Make locked running jobs final with these results; return False where nothing was done.

        The keys are the jobs' ids.
        """

    def insert_one(self, job: Job) -> None:
        """Insert a new job and give it its id."""

    def insert(self, jobs: Iterable[Job], count: int, *, by_key: bool) -> list[Job]:
        """Insert `count` new jobs in the caller's transaction; return them with their ids.

        The ids grow in the order of the jobs. `jobs` may be made one by one while they are
        inserted. `by_key` is for jobs with keys: the rows go in in the order of their keys, so that
        two batches with the same keys wait for each other in one order only.
        """
