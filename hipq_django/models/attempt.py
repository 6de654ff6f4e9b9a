"""Failed attempts: one row each, a success costs none."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.utils import timezone

from hipq_django.exceptions import ErrorAnswer, JobTimeout, WorkerLost
from hipq_django.models.fields import JsonField
from hipq_django.models.job import Job
from hipq_django.models.manager import RowManager
from hipq_django.payloads import NONE


class Attempt(models.Model):
    """A failed attempt of a job."""

    class Kind(models.TextChoices):
        """What made the attempt fail."""

        RAISED = "raised", "handler raised"
        TIMED_OUT = "timed_out", "timed out"
        WORKER_LOST = "worker_lost", "worker lost"
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

    CLASSES: ClassVar[dict[str, type[Exception]]] = {
        Kind.TIMED_OUT: JobTimeout,
        Kind.WORKER_LOST: WorkerLost,
        Kind.ANSWERED: ErrorAnswer,
    }
    """The exception class that stands for an error which no handler raised."""

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        ordering: ClassVar = ["job", "attempt"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "attempt"], name="hipq_attempt_unique"),
        ]

    if TYPE_CHECKING:
        job_id: int

    def __str__(self) -> str:
        return f"attempt {self.attempt} of job {self.job_id}"
