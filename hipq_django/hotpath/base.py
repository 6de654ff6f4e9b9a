"""What both implementations offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from hipq_django.inbox import Message
    from hipq_django.models import Job, Queue, Worker
    from hipq_django.throttling import Load


class Busy(NamedTuple):
    """A queue and what there is to do in it."""

    queue: Queue
    first_rank: int | None
    """The rank of the first due job that there is room for, or a lower one; None: there is none."""
    has_response: bool
    has_error: bool
    needs_look: bool = False
    """Whether its first due job cannot be claimed at once."""

    @property
    def has_startable(self) -> bool:
        """Whether a job may start."""
        return self.first_rank is not None and not self.queue.paused


class Known(NamedTuple):
    """What the scheduler knows of a queue before it looks."""

    bound: int
    """A rank that no due job exceeds: it stops the look before the rows of the future."""
    is_strict: bool
    """Whether nobody can start before the first due job, however long that is held back."""
    front: int
    """A rank at which the look begins."""


class Wanted(NamedTuple):
    """How much is claimed at once."""

    room: int
    """So many jobs start at once; those behind are noted as claimed ahead."""
    limit: int
    """So many jobs in all."""
    types: Sequence[int]
    """The ids of the job types that there is code for; others need a look."""


class Head(NamedTuple):
    """The first due jobs of a limited queue, and what decides which of them may start.

    Where there are no jobs the rest does not count.
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
    """None that may have killed its worker."""
    locks: bool = True
    """Whether to lock them, and pass over those that others have locked."""


FIRST = Which()

Finished = tuple[int, int, Any, bool]
"""Id, attempt and result of a job; whether it was a request, so that an answer may be quicker."""


class Failing(NamedTuple):
    """An attempt that failed in a worker's hands."""

    id: int
    attempt: int
    is_request: bool
    """Whether it was a request, so that an answer may be quicker."""
    state: str
    """Error, or final where it is given up at once."""
    outcome: str
    is_kept: bool
    """Whether the error stays in hand, because what follows is written next."""
    error: Any
    classes: Sequence[str]
    traceback: str
    start_time: datetime


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


class Settled(NamedTuple):
    """A job that was settled by a response, and the answer that was stored of it."""

    answer_id: int
    job_id: int
    job_key: str
    attempt: int
    queue_id: int


class OutdatedError(Exception):
    """The rows from which a job was made have changed since they were read."""


class GivenUpError(Exception):
    """The worker that wanted jobs was given up by the others: its row is not live any more."""


class HotPath(Protocol):
    """The statements; each method is one, or a few, whatever the size of the batch."""

    def look(
        self,
        instance: str,
        names: Sequence[str],
        now: datetime,
        known: Mapping[int, Known],
    ) -> list[Busy]:
        """Return the queues by id and what each has to do; no locks.

        A limited queue without room has nothing due but critical jobs; a strict one none either
        where the first due job may not fit. `known` is by the queues' ids.
        """

    def has_overdue(self, instance: str, now: datetime) -> bool:
        """Return False where no running job of the instance is past its deadline."""

    def has_early(self, instance: str) -> bool:
        """Return False where no early answer of the instance waits for a job."""

    def early_page(
        self, instance: str, after: EarlyPlace, limit: int
    ) -> tuple[list[EarlyPlace], EarlyPlace | None]:
        """Look at the next early answers that no job has, in the order of their keys.

        Return those whose job has begun, or is final, and the last one that was looked at; None
        where there is none behind it.
        """

    def new_early(self, instance: str, after: int, limit: int) -> list[int]:
        """Look at the newest such answers with greater ids; return those whose job has begun."""

    def lock(self, queue: Queue, worker: Worker) -> Queue | None:
        """Lock and read the row of a queue anew; None where it is gone or somebody has it.

        The lock of a worker that falls silent may be ended by the database.
        """

    def head(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> Head:
        """Return the first due jobs of a locked queue, as `due`, and its load.

        What was committed before the queue was locked is seen.
        """

    def running(self, queue: Queue) -> list[Load]:
        """Return what throttlers see of the queue's running jobs."""

    def due(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> list[Job]:
        """Return due jobs in their order, locked unless `which` says otherwise.

        They begin at the queue's `front`. Of a queue that had no limit, none if it was paused or
        given a limit since it was read.
        """

    def lock_unchanged(self, jobs: Sequence[Job]) -> list[Job]:
        """Lock and return those of these waiting jobs that are still as they were read.

        Rows that others have locked are passed over.
        """

    def claim_due(
        self, queues: Sequence[Queue], worker: Worker, now: datetime, wanted: Wanted
    ) -> list[Job]:
        """Claim the first due jobs of queues without a limit that need no look.

        Return them in order: the queues in turn, from each its jobs from its `front` on. A job
        needs a look that has time windows, lost its worker, has an early answer or is of an unknown
        type; the claim ends before it, and goes on with the next queue. It may return fewer, or
        none: what is left goes by `lock`, `head` or `due`, and `claim`. A worker that was given up
        gets none.
        """

    def refill(
        self,
        done: Sequence[Finished],
        queue: Queue,
        worker: Worker,
        now: datetime,
        wanted: Wanted,
    ) -> tuple[set[int], list[Job]]:
        """Do what `finish` does, then claim from a limited queue as `claim_due`; all or nothing.

        Return the ids and the claimed jobs. The queue is locked first; the claim ends before the
        first job that does not fit, and there is none while critical jobs are due.
        """

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        """Write that these locked waiting jobs run, as their copies say; return how many.

        None if the worker was given up.
        """

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """Make jobs final that are still the worker's and were not answered; return their ids.

        It may return fewer than it could have: what is left, the rows that somebody else has
        locked for instance, is written with more care.
        """

    def let_go(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        """Let jobs (id, attempt) wait for their answer; return the ids, or fewer, as `finish`."""

    def fail(
        self,
        failed: Sequence[Failing],
        concluded: Sequence[Concluded],
        worker: Worker,
        now: datetime,
    ) -> set[int]:
        """Write failed attempts, and what follows errors: of these, or of those in hand.

        Return the ids, or fewer, as `finish`.
        """

    def failures(self, ids: Sequence[int]) -> dict[int, int]:
        """Return how many attempts of each of these jobs have failed."""

    def settle(
        self,
        messages: Sequence[Message],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[Settled]:
        """Store responses as accepted and settle the jobs by them that wait for just these.

        Those are jobs in nobody's hands that wait for one answer and never got any. They become
        final or, with `handled`, wait for their response handler. The messages are for one job
        type and differ in their keys; or there is one, for its attempt of the job with an id.
        Return what was settled, or less; a message whose id is known raises `IntegrityError`.
        """

    def lock_live(self, instance: str, keys: Iterable[tuple[str, str]]) -> None:
        """Lock the live jobs with these job types and keys, in the order of their ids.

        It may leave that to those who read the jobs, where `settle` settles none.
        """

    def name_and_key(self, job_id: int) -> tuple[str, str] | None:
        """Return the name of a job's type and the job's key, None where there is no such job."""

    def insert_one(self, job: Job) -> None:
        """Insert a new job and give it its id.

        Raise `OutdatedError`, with nothing inserted, where its job type or that type's queue have
        changed since they were read in the versions that the job type names.
        """

    def insert(self, jobs: Iterable[Job], count: int, *, by_key: bool) -> list[Job]:
        """Insert `count` new jobs in the caller's transaction; return them with their ids.

        The ids grow in the order of the jobs. `jobs` may be made one by one while they are
        inserted. `by_key` is for jobs with keys: the rows go in in the order of their keys, so that
        two batches with the same keys wait for each other in one order only.
        """
