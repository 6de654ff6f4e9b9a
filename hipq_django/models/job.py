"""Jobs. Where a job's state is written is `hipq_django.transitions`, nowhere else."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from asgiref.sync import sync_to_async
from django.db import models
from django.db.models import Q
from django.utils import timezone

from hipq_django.database.lookups import outcome_in, state_in
from hipq_django.domain.states import (
    NONE,
    UNSUCCESSFUL,
    VALID_COMBINATIONS,
    WAITING,
    Outcome,
    Phase,
    State,
)
from hipq_django.domain.validation import started
from hipq_django.models.base import JsonField, Row, RowManager, factor_field, no_error
from hipq_django.models.constraints import IsValidCombination
from hipq_django.models.job_type import JobType
from hipq_django.models.queue import Queue
from hipq_django.models.worker import Worker

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

    from hipq_django.models.answer import Answer
    from hipq_django.models.attempt import Attempt


class JobQuerySet(models.QuerySet["Job"]):
    """The questions that are asked about jobs; each has an index."""

    def waiting(self) -> JobQuerySet:
        """Jobs in initial or retry."""
        return self.filter(state_in(*WAITING))

    def due(self, now: datetime) -> JobQuerySet:
        """Waiting jobs whose time has come."""
        return self.waiting().filter(scheduled_run_time__lte=now)

    def running(self) -> JobQuerySet:
        """Jobs that count against the limit: executing or waiting for their answer."""
        return self.filter(state_in(State.RUNNING))

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
        held = self.filter(worker__isnull=False)
        running, errors = held.running(), held.in_error()
        return running.order_by("queue_id", "deadline"), errors.order_by("queue_id", "id")

    def live(self) -> JobQuerySet:
        """Jobs that are not final; written as in the unique index, so that it serves."""
        return self.exclude(state=State.FINAL)

    def keyed(self) -> JobQuerySet:
        """Jobs that have a key; written as in the indexes of keys, so that these serve."""
        return self.exclude(job_key=NONE)

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

    # Values of a fixed size first, those that may be NULL last: PostgreSQL keeps the columns in
    # this order, and finds one faster that has the same place in each row.
    queue = models.ForeignKey(Queue, models.PROTECT, related_name="jobs", db_index=False)
    job_type = models.ForeignKey(JobType, models.PROTECT, related_name="jobs", db_index=False)
    rank = models.BigIntegerField(default=0, editable=False)
    scheduled_run_time = models.DateTimeField(default=timezone.now)
    deadline = models.DateTimeField(
        default=timezone.now, help_text="When a running attempt times out."
    )
    create_time = models.DateTimeField(default=timezone.now, editable=False)
    update_time = models.DateTimeField(default=timezone.now, editable=False)
    timeout = models.FloatField(default=86_400, help_text="Seconds for each attempt.")
    progress = models.FloatField(
        default=0, help_text="Percent of the attempt, as the other system said."
    )
    extended_seconds = models.FloatField(
        default=0, help_text="By how much the deadline of the attempt was moved."
    )
    attempt = models.PositiveIntegerField(default=0)
    priority = models.IntegerField(default=100, help_text="Lower runs sooner.")
    has_pending_answer = models.BooleanField(
        default=False, help_text="An answer is in the inbox that was not processed yet."
    )
    prefetched = models.BooleanField(
        default=False, help_text="Claimed ahead: it may not have started yet."
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.INITIAL)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.NONE)
    phase = models.CharField(
        max_length=10,
        choices=Phase.choices,
        default=Phase.NONE,
        help_text="What the worker does with it.",
    )
    job_key = models.CharField(max_length=255, default=NONE)
    throttle_factor = factor_field(1, "throttle factor")
    time_windows = JsonField(default=list, blank=True)
    expects = JsonField(
        default=list,
        editable=False,
        help_text="How many answers, or the names of their parts; empty for one answer.",
    )
    error = JsonField(default=no_error)
    job_data = JsonField(default=dict, blank=True)
    result = JsonField(default=None)
    progress_message = models.TextField(default=NONE)
    # Without a constraint in the database, which would check the worker's row once for each job
    # of a claim. A worker's row is only deleted when no job names it.
    worker = models.ForeignKey(
        Worker,
        models.PROTECT,
        related_name="jobs",
        null=True,
        blank=True,
        db_index=False,
        db_constraint=False,
    )
    # The origin may be pruned before its successor, and a final row may not be written any more.
    origin = models.ForeignKey(
        "self",
        models.DO_NOTHING,
        related_name="successors",
        null=True,
        blank=True,
        db_index=False,
        db_constraint=False,
    )

    objects = RowManager.from_queryset(JobQuerySet)()

    if TYPE_CHECKING:
        queue_id: int
        job_type_id: int
        worker_id: int | None
        origin_id: int | None
        attempts: RelatedManager[Attempt]
        answers: RelatedManager[Answer]

    class Meta:
        base_manager_name = "objects"
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
            # For operators; a success is not in it and costs nothing.
            models.Index(
                fields=["outcome", "id"],
                condition=Q(outcome__in=["failed", "timed_out", "cancelled"]),
                name="hipq_job_unsuccessful",
            ),
        ]

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

    def masked(self, value: Any) -> Any:
        """Return JSON or text about this job without the values of its sensitive fields."""
        return self.job_type.redactor.knowing(self.job_data).mask(value)

    def masked_reason(self, text: str) -> str:
        """Return what a throttler says of this job, without its sensitive values, however short."""
        return self.job_type.redactor.knowing_all(self.job_data).mask_text(text)

    @property
    def answers_so_far(self) -> Any:
        """What the other system answered already: part → response.

        For a handler that runs again and asks only for what is missing. A list, in the order of
        arrival, for a job type with counted answers. Asks the database; in async code use
        `sync_to_async`.
        """
        from hipq_django.answers.aggregation import answers_so_far  # it stands above the models

        return answers_so_far(self)

    def set_key(self, job_key: str) -> bool:
        """Set or replace the key of this running job: the id that the other system gave it.

        Written at once, in a transaction of its own unless one is open, so that an answer finds
        it; one that came before under this key is taken now. Return whether it was written:
        False where this attempt was answered already and needs no key any more. Raise
        `InvalidJobError` where the job does not run this attempt, `DuplicateJobKeyError` where
        another live job of the type has the key.
        """
        from hipq_django.api.reporting import set_key  # it stands above the models

        return set_key(self, job_key)

    async def aset_key(self, job_key: str) -> bool:
        """Do the same in async code."""
        return await sync_to_async(self.set_key)(job_key)
