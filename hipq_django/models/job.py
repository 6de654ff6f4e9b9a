"""Jobs. Their states are written by `hipq_django.transitions` and the engines alone."""

# The fields have the types of their values too, for projects that check without Django's plugin.
# mypy: disable-error-code="assignment"

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from asgiref.sync import sync_to_async
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.database.lookups import outcome_in, state_in
from hipq_django.database.twins import method_twin
from hipq_django.domain.dependencies import MAX_INPUTS
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.states import (
    NONE,
    UNSUCCESSFUL,
    VALID_COMBINATIONS,
    WAITING,
    Outcome,
    Phase,
    State,
)
from hipq_django.domain.validation import MAX_KEY_CHARS, started
from hipq_django.models import verbs
from hipq_django.models.base import (
    JsonField,
    Row,
    RowKey,
    RowManager,
    factor_field,
    no_error,
)
from hipq_django.models.batch import Batch
from hipq_django.models.constraints import IsValidCombination
from hipq_django.models.job_type import JobType
from hipq_django.models.queue import Queue
from hipq_django.models.worker import Worker

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from hipq_django.domain.drafts import NewJob
    from hipq_django.domain.parts import WaitFor
    from hipq_django.models.answer import Answer
    from hipq_django.models.attempt import Attempt
    from hipq_django.models.link import Link


INPUTS_AT_ONCE = 100
"""How many inputs async code reads in one turn of the thread."""


class JobQuerySet(models.QuerySet["Job"]):
    """The questions that are asked about jobs; each has an index."""

    def row_of(self, job: Job) -> JobQuerySet:
        """The row of a job, and no other one.

        Where the transaction that enqueued a job was rolled back, SQLite gives its id to another.
        """
        return self.filter(pk=job.pk, create_time=job.create_time, job_type=job.job_type_id)

    def of_instance(self, instance: str) -> JobQuerySet:
        """Jobs of an instance: by the ids of its queues, with which the indexes begin."""
        queues = Queue.objects.using(self.db).filter(instance=instance)
        return self.filter(queue__in=list(queues.values_list("pk", flat=True)))

    def waiting(self) -> JobQuerySet:
        """Jobs in initial or retry."""
        return self.filter(state_in(*WAITING))

    def due(self, now: datetime) -> JobQuerySet:
        """Waiting jobs whose time has come."""
        return self.waiting().filter(scheduled_run_time__lte=now)

    def running(self) -> JobQuerySet:
        """Jobs that count against the limit: executing or waiting for their answer."""
        return self.filter(state_in(State.RUNNING))

    def past_deadline(self, moment: datetime | models.Func) -> JobQuerySet:
        """Running jobs whose deadline was before a moment, but for those answered in time."""
        late = self.running().filter(deadline__lt=moment)
        return late.exclude(has_pending_answer=True, worker__isnull=True)

    def load(self) -> Decimal:
        """Return the sum of the factors of the running ones."""
        total = self.running().aggregate(total=models.Sum("throttle_factor"))["total"]
        return Decimal(total or 0)

    def awaiting_response_handler(self) -> JobQuerySet:
        """Running jobs whose response is in and that nobody owns."""
        return self.running().filter(has_pending_answer=True, worker__isnull=True)

    def in_error(self) -> JobQuerySet:
        """Jobs about which the retry handler has not decided yet."""
        return self.filter(state_in(State.ERROR))

    def owned(self) -> tuple[JobQuerySet, JobQuerySet]:
        """Jobs that workers own: running ones, and errors.

        Each is asked for in the order of its index. Else PostgreSQL, by its statistics, would
        rather look for them in the whole table. By `queue_id`, because `queue` means the order of
        queues, which joins their rows.
        """
        owned = self.filter(worker__isnull=False)
        running, errors = owned.running(), owned.in_error()
        return running.order_by("queue_id", "deadline"), errors.order_by("queue_id", "id")

    def live(self) -> JobQuerySet:
        """Jobs that are not final; written as in the unique index, so that it serves."""
        return self.exclude(state=State.FINAL)

    def keyed(self) -> JobQuerySet:
        """Jobs that have a key; written as in the indexes of keys, so that these serve."""
        return self.exclude(job_key=NONE)

    def with_key(self, job_key: str, instance: str, names: Collection[str]) -> JobQuerySet:
        """Jobs of an instance with a key, of a type by any of its names."""
        types = JobType.objects.using(self.db).filter(instance=instance, name__in=names)
        return self.filter(job_type__in=types, job_key=job_key).keyed()

    def holding(self, scope: str) -> JobQuerySet:
        """Jobs that keep others with their key away; written as in the unique indexes."""
        if scope == "live":
            return self.live().keyed()
        if scope == "waiting":
            return self.filter(state="initial", waiting_key__isnull=False)
        return self.filter(kept_key__isnull=False)

    def held(self) -> JobQuerySet:
        """Jobs that wait for others; written as in their index."""
        return self.filter(hold_time__isnull=False, state="initial")

    def then_of(self, batch: Batch | models.OuterRef) -> JobQuerySet:
        """The live `then` of a batch: held, or on its way since the batch has succeeded."""
        return self.live().filter(needs__needs_batch=batch, needs__on="succeeded")

    def final(self) -> JobQuerySet:
        """Jobs that are finished for good."""
        return self.filter(state_in(State.FINAL))

    def ended(self, outcome: Outcome) -> JobQuerySet:
        """Final jobs with one outcome; the unsuccessful have an index of their own."""
        if outcome in UNSUCCESSFUL:
            return self.filter(outcome_in(*UNSUCCESSFUL), outcome=outcome)
        return self.final().filter(outcome=outcome)


class Job(Row):
    """A job instance. Source of the fields: hipq state.md, "Job Instance"."""

    State = State
    Outcome = Outcome
    Phase = Phase

    if TYPE_CHECKING:
        # What a type checker without Django's plugin knows of the fields.
        id: int
        pk: int
        scheduled_run_time: datetime
        deadline: datetime
        create_time: datetime
        update_time: datetime
        timeout: float
        progress: float
        attempt: int
        priority: int
        has_pending_answer: bool
        state: str
        outcome: str
        phase: str
        job_key: str
        throttle_factor: Any
        time_windows: list[Any]
        error: Any
        job_data: Any
        result: Any
        progress_message: str

    # Values of a fixed size first, those that may be NULL last: PostgreSQL keeps the columns in
    # this order, and finds one faster that has the same place in each row.
    queue = RowKey(
        Queue, models.PROTECT, verbose_name=_("queue"), related_name="jobs", db_index=False
    )
    job_type = RowKey(
        JobType, models.PROTECT, verbose_name=_("job type"), related_name="jobs", db_index=False
    )
    rank = models.BigIntegerField(_("rank"), default=0, editable=False)
    scheduled_run_time = models.DateTimeField(_("scheduled run time"), default=timezone.now)
    deadline = models.DateTimeField(
        _("deadline"), default=timezone.now, help_text=_("When a running attempt times out.")
    )
    create_time = models.DateTimeField(_("create time"), default=timezone.now, editable=False)
    update_time = models.DateTimeField(_("update time"), default=timezone.now, editable=False)
    timeout = models.FloatField(
        _("timeout"), default=86_400, help_text=_("Seconds for each attempt.")
    )
    progress = models.FloatField(
        _("progress"),
        default=0,
        help_text=_("How much of the attempt is done, as last reported, in percent."),
    )
    extended_seconds = models.FloatField(
        _("extended seconds"),
        default=0,
        help_text=_("By how much the deadline of the attempt was moved."),
    )
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    priority = models.IntegerField(
        _("priority"), default=100, help_text=_("Lower values run sooner.")
    )
    has_pending_answer = models.BooleanField(
        _("has pending answer"),
        default=False,
        help_text=_("The inbox has an answer that was not processed yet."),
    )
    # It counts only while a worker owns the job. What ends that leaves it as it is: the hot
    # statements would pay for a column more, and the next owner writes it in any case.
    prefetched = models.BooleanField(
        _("prefetched"), default=False, help_text=_("Claimed ahead: it may not have started yet.")
    )
    state = models.CharField(
        _("state"), max_length=10, choices=State.choices, default=State.INITIAL
    )
    outcome = models.CharField(
        _("outcome"), max_length=10, choices=Outcome.choices, default=Outcome.NONE
    )
    phase = models.CharField(
        _("phase"),
        max_length=10,
        choices=Phase.choices,
        default=Phase.NONE,
        help_text=_("What the worker does with it."),
    )
    job_key = models.CharField(_("job key"), max_length=MAX_KEY_CHARS, default=NONE)
    throttle_factor = factor_field(1, _("throttle factor"))
    time_windows = JsonField(_("time windows"), default=list, blank=True)
    expects = JsonField(
        _("expects"),
        default=list,
        editable=False,
        help_text=_("How many answers, or the names of their parts; empty for one answer."),
    )
    error = JsonField(_("error"), default=no_error)
    job_data = JsonField(_("job data"), default=dict, blank=True)
    result = JsonField(_("result"), default=None)
    progress_message = models.TextField(_("progress message"), default=NONE)
    # Without a constraint in the database, which would check the worker's row once for each job
    # of a claim. A worker's row is only deleted when no job names it.
    worker = RowKey(
        Worker,
        models.PROTECT,
        verbose_name=_("worker"),
        related_name="jobs",
        null=True,
        blank=True,
        db_index=False,
        db_constraint=False,
    )
    # The origin may be pruned before its successor, and a final row may not be written any more.
    origin = RowKey(
        "self",
        models.DO_NOTHING,
        verbose_name=_("origin"),
        related_name="successors",
        null=True,
        blank=True,
        db_index=False,
        db_constraint=False,
    )

    # What most jobs do not have is NULL, without a default or a check: to add such a column touches
    # no row, and older releases that do not name it go on working.
    parent = RowKey(
        "self",
        models.DO_NOTHING,
        verbose_name=_("parent"),
        related_name="children",
        null=True,
        blank=True,
        editable=False,
        db_index=False,
        db_constraint=False,
    )

    batch = RowKey(
        Batch,
        models.DO_NOTHING,
        verbose_name=_("batch"),
        related_name="jobs",
        null=True,
        blank=True,
        editable=False,
        db_index=False,
        db_constraint=False,
    )
    hold_time = models.DateTimeField(
        _("hold time"),
        null=True,
        blank=True,
        editable=False,
        help_text=_("When a job that waits for others is to run."),
    )
    waiting_key = models.CharField(  # noqa: DJ001 - rows without it are not one byte longer
        _("waiting key"),
        max_length=MAX_KEY_CHARS,
        null=True,
        blank=True,
        editable=False,
    )
    kept_key = models.CharField(  # noqa: DJ001 - as above
        _("kept key"),
        max_length=MAX_KEY_CHARS,
        null=True,
        blank=True,
        editable=False,
    )

    # Of the schedule that made it, which may be deleted since.
    schedule_id: models.BigIntegerField[int | None, int | None] = models.BigIntegerField(
        _("schedule id"), null=True, blank=True, editable=False
    )
    due_time = models.DateTimeField(
        _("due time"),
        null=True,
        blank=True,
        editable=False,
        help_text=_("When its schedule was due."),
    )
    # Its row may be gone, so it is no foreign key.
    last_worker_id = models.BigIntegerField(_("last worker"), null=True, blank=True, editable=False)
    shard_key = models.TextField(  # noqa: DJ001 - rows without it are not one byte longer
        _("shard key"),
        null=True,
        blank=True,
        editable=False,
        help_text=_("Says in which shard the job is, if it was given one."),
    )

    objects = RowManager.from_queryset(JobQuerySet)()

    conflict: bool = False
    """Of a job that an enqueue returned: whether it was there already, with the same key."""

    has_finished: bool = False
    """For a handler: whether it has ended the job by `finishing`."""

    last_error: Any = NONE
    """For a handler: the error that the job had before it was claimed."""

    if TYPE_CHECKING:
        queue_id: int
        job_type_id: int
        worker_id: int | None
        origin_id: int | None
        parent_id: int | None
        batch_id: int | None
        needs: RelatedManager[Link]
        attempts: RelatedManager[Attempt]
        answers: RelatedManager[Answer]

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions: ClassVar = [
            ("run_job", "Can run jobs now"),
            ("cancel_job", "Can cancel jobs"),
            ("requeue_job", "Can requeue jobs"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["job_type", "job_key"],
                condition=~Q(state="final") & ~Q(job_key=NONE),
                name="hipq_job_key_unique",
            ),
            models.UniqueConstraint(
                fields=["job_type", "waiting_key"],
                condition=Q(waiting_key__isnull=False) & Q(state="initial"),
                name="hipq_job_waiting_key_unique",
            ),
            models.UniqueConstraint(
                fields=["job_type", "kept_key"],
                condition=Q(kept_key__isnull=False),
                name="hipq_job_kept_key_unique",
            ),
            models.CheckConstraint(
                condition=Q(IsValidCombination(VALID_COMBINATIONS))
                & (Q(attempt=0) | ~Q(state="initial")),
                name="hipq_job_fits_state",
            ),
            models.CheckConstraint(
                condition=Q(timeout__gt=0, timeout__lte=400_000_000)
                & Q(throttle_factor__gte=0)
                & Q(priority__gte=-1_000_000, priority__lte=1_000_000)
                & Q(progress__gte=0, progress__lte=100)
                & Q(extended_seconds__gte=0)
                & ~Q(job_key=""),
                name="hipq_job_ranges",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["queue", "rank", "id", "scheduled_run_time"],
                condition=Q(state__in=["initial", "retry"]),
                name="hipq_job_waiting",
            ),
            models.Index(
                fields=["queue", "rank", "id"],
                condition=Q(state__in=["initial", "retry"], throttle_factor=0),
                name="hipq_job_critical",
            ),
            models.Index(
                fields=["queue", "deadline", "throttle_factor"],
                condition=Q(state__in=["running"]),
                name="hipq_job_running",
            ),
            models.Index(
                fields=["queue", "id"],
                condition=Q(state__in=["running"], has_pending_answer=True),
                name="hipq_job_pending_answer",
            ),
            models.Index(
                fields=["queue", "id"], condition=Q(state__in=["error"]), name="hipq_job_error"
            ),
            models.Index(
                fields=["queue", "update_time"],
                condition=Q(state__in=["final"]),
                name="hipq_job_final",
            ),
            models.Index(
                fields=["job_type", "job_key"],
                condition=Q(state__in=["final"]) & ~Q(job_key=NONE),
                name="hipq_job_final_key",
            ),
            # What a job was requeued as; jobs without an origin are not in it.
            models.Index(
                fields=["origin"], condition=Q(origin__isnull=False), name="hipq_job_origin"
            ),
            models.Index(
                fields=["parent"], condition=Q(parent__isnull=False), name="hipq_job_parent"
            ),
            models.Index(
                fields=["batch", "state", "outcome"],
                condition=Q(batch__isnull=False),
                name="hipq_job_batch",
            ),
            models.Index(
                fields=["schedule_id"],
                condition=Q(schedule_id__isnull=False) & ~Q(state="final"),
                name="hipq_job_of_schedule",
            ),
            models.Index(
                fields=["id"],
                condition=Q(hold_time__isnull=False, state="initial"),
                name="hipq_job_held",
            ),
            # For operators; a success is not in it and costs nothing.
            models.Index(
                fields=["outcome", "id"],
                condition=Q(outcome__in=["failed", "timed_out", "cancelled"]),
                name="hipq_job_unsuccessful",
            ),
        ]

    known: Redactor | None = None
    """Knows sensitive values that its code was given, besides those of its data."""

    def __str__(self) -> str:
        return f"job {self.pk}" if self.job_key == NONE else f"job {self.pk} ({self.job_key})"

    @property
    def is_final(self) -> bool:
        """Whether the job is finished for good."""
        return self.state == State.FINAL

    @property
    def is_awaiting_answer(self) -> bool:
        """Whether the request was sent and nobody executes the job now."""
        is_unowned = self.state == State.RUNNING and self.worker_id is None
        return is_unowned and not self.has_pending_answer

    @property
    def start_time(self) -> datetime:
        """When the attempt was claimed, by its deadline; of no use before the first claim."""
        return started(self.deadline, self.timeout, self.extended_seconds)

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of a log line that say which attempt of which job it is about."""
        return {
            "job_id": self.pk,
            "job_type": self.job_type.name,
            "job_key": self.job_key,
            "queue": self.queue.name,
            "attempt": self.attempt,
        }

    @property
    def redactor(self) -> Redactor:
        """What masks the sensitive values of its data, and those that its code was given."""
        known = self.known or self.job_type.redactor
        return known.knowing(self.job_data) if known.fields else known

    def learn(self, *values: Any) -> None:
        """Remember the sensitive values in what its code is given: errors may quote them."""
        if self.job_type.sensitive_fields:
            self.known = (self.known or self.job_type.redactor).knowing(*values)

    @property
    def answers_so_far(self) -> Any:
        """What the other system answered already: part → response.

        For a handler that runs again and asks only for what is missing. A list, in the order of
        arrival, for a job type with counted answers. Asks the database.
        """
        return verbs.answers_so_far(self)

    def inputs(self) -> Iterator[tuple[Job, Any]]:
        """Yield the jobs that this one waited for, in order, each with its result.

        The result of one that did not succeed is None, and so is that of one that was pruned before
        this one was requeued, of which only the `pk` is left: all else raises `Job.DoesNotExist`.
        Asks the database, page by page.
        """
        yield from verbs.inputs(self)

    def first_inputs(self, count: int = MAX_INPUTS) -> list[Any]:
        """Return the first of these results, as the parameter `inputs` of a task has them."""
        return [result for _, result in islice(self.inputs(), count)]

    def set_key(self, job_key: str) -> bool:
        """Set or replace the key of this running job: the id that the other system gave it.

        Written at once, in a transaction of its own unless one is open, so that an answer finds
        it; one that came before under this key is taken now. Return whether it was written:
        False where this attempt was answered already and needs no key any more. Raise
        `InvalidJobError` where the job does not run this attempt, or its type is unique by "live",
        `DuplicateJobKeyError` where another live job of the type has the key.
        """
        return verbs.set_key(self, job_key)

    def report(self, percent: float, message: str = "") -> bool:
        """Store how far this attempt is, for its handler; return whether it is still running.

        `percent` is from 0 to 100; of `message` 500 characters are kept. Where another attempt
        has begun, or the job has ended, nothing is written.
        """
        return verbs.report_attempt(self, percent, message)

    def extend(self, seconds: float) -> datetime | None:
        """Move the deadline of this attempt by `seconds`, for its handler; return the new one.

        None where another attempt has begun, or the job has ended. See `hipq_django.extend`.
        """
        return verbs.extend_attempt(self, seconds)

    def step(
        self, name: str, function: Callable[..., Any], *args: Any, atomic: bool = False, **more: Any
    ) -> Any:
        """Call a function once for this job; later attempts get its stored result.

        The result is JSON. What raises is not stored, so the next attempt calls it again. With
        `atomic=True` it is called in the transaction that stores its result: what it writes to the
        job's database counts exactly once. Raise `StaleAttemptError`, with nothing stored, if
        the attempt is over.
        """
        call = partial(function, *args, **more)
        return verbs.step(self, name, call, atomic=atomic)

    async def astep(
        self, name: str, function: Callable[..., Any], *args: Any, atomic: bool = False, **more: Any
    ) -> Any:
        """Do the same in async code, with a function or an `async def`.

        What is `atomic` is called in a thread, and is no `async def`.
        """
        call = partial(function, *args, **more)
        return await verbs.astep(self, name, call, atomic=atomic)

    def gather(self, jobs: Iterable[NewJob], *, names: Sequence[str] | None = None) -> WaitFor:
        """Enqueue jobs whose ends are the answers of this one: `return job.gather([…])`.

        The response handler gets a dict by their `names`, "1", "2", … if none are given: of each
        `{"result": …}`, or `{"error": …}` if it ended without success. A later attempt finds the
        jobs that an earlier one has enqueued. Raise `InvalidJobError` for none, or for more than
        1,000, jobs, for names that do not fit, and for jobs with a sensitive field that this type
        would show; `StaleAttemptError` if the attempt is over.
        """
        return verbs.gather(self, jobs, names)

    async def aanswers_so_far(self) -> Any:
        """Return the same in async code."""
        return await sync_to_async(lambda: self.answers_so_far)()

    async def abatch(self) -> Batch | None:
        """Return its batch in async code, where `job.batch` cannot ask the database."""
        return await sync_to_async(lambda: self.batch)()

    async def ainputs(self) -> AsyncIterator[tuple[Job, Any]]:
        """Yield the same in async code: `async for needed, result in job.ainputs()`."""
        rows = self.inputs()
        while page := await sync_to_async(lambda: list(islice(rows, INPUTS_AT_ONCE)))():
            for pair in page:
                yield pair

    afirst_inputs = method_twin(first_inputs)
    agather = method_twin(gather)
    areport = method_twin(report)
    aextend = method_twin(extend)
    aset_key = method_twin(set_key)
