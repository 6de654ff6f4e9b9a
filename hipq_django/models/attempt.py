"""Failed attempts: one row each, a success costs none."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import F
from django.utils import timezone

from hipq_django.domain.states import NONE
from hipq_django.exceptions import ErrorAnswer, JobTimeout, WorkerLost
from hipq_django.models.base import JsonField, RowManager
from hipq_django.models.job import Job


class AttemptQuerySet(models.QuerySet["Attempt"]):
    """The questions that are asked about failed attempts."""

    def of_suspects(self, workers: Collection[int | None]) -> AttemptQuerySet:
        """The losses that make suspects of jobs which these workers are executing."""
        running = Job.objects.using(self.db).running()
        executing = running.filter(worker__in=workers, prefetched=False)
        kinds = (Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER)
        return self.filter(job__in=executing, attempt=F("job__attempt") - 1, kind__in=kinds)

    def of_suspect_decisions(self, workers: Collection[int | None]) -> AttemptQuerySet:
        """The failures about which these workers are deciding, as others were when they died."""
        deciding = Job.objects.using(self.db).in_error().filter(worker__in=workers)
        return self.filter(job__in=deciding, attempt=F("job__attempt"), lost_decisions__gt=0)


class Attempt(models.Model):
    """A failed attempt of a job."""

    class Kind(models.TextChoices):
        """What made the attempt fail."""

        RAISED = "raised", "handler raised"
        TIMED_OUT = "timed_out", "timed out"
        WORKER_LOST = "worker_lost", "worker lost"
        BYSTANDER = "bystander", "worker lost beside a suspect"
        ANSWERED = "answered", "answered with an error"

    job = models.ForeignKey(Job, models.CASCADE, related_name="attempts", db_index=False)
    attempt = models.PositiveIntegerField()
    kind = models.CharField(max_length=20, choices=Kind.choices, default=Kind.RAISED)
    error = JsonField()
    exception_classes = JsonField(default=list, editable=False)
    traceback = models.TextField(default=NONE)
    worker = models.CharField(max_length=200, default=NONE)
    start_time = models.DateTimeField(default=timezone.now)
    end_time = models.DateTimeField(default=timezone.now)
    # So that a decision reads the last row alone, however many there are.
    failures = models.PositiveIntegerField(
        default=1, editable=False, help_text="How many attempts have failed, this one included."
    )
    losses = models.PositiveIntegerField(
        default=0, editable=False, help_text="How many in a row, up to this one, lost their worker."
    )
    interrupted = models.PositiveIntegerField(
        default=0, editable=False, help_text="How many in a row lost it or ran out of time."
    )

    lost_decisions = models.PositiveIntegerField(
        default=0, editable=False, help_text="How many workers died deciding what follows."
    )

    objects = RowManager.from_queryset(AttemptQuerySet)()

    CLASSES: ClassVar[dict[str, type[Exception]]] = {
        Kind.TIMED_OUT: JobTimeout,
        Kind.WORKER_LOST: WorkerLost,
        Kind.BYSTANDER: WorkerLost,
        Kind.ANSWERED: ErrorAnswer,
    }
    """The exception class that stands for an error which no handler raised."""

    class Meta:
        base_manager_name = "objects"
        ordering: ClassVar = ["job", "attempt"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "attempt"], name="hipq_attempt_unique")
        ]

    if TYPE_CHECKING:
        job_id: int

    def __str__(self) -> str:
        return f"attempt {self.attempt} of job {self.job_id}"
