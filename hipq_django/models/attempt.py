"""Failed attempts: one row each, a success costs none."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import Exists, F, OuterRef
from django.db.models.functions import Cast
from django.db.models.lookups import StartsWith
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.states import NONE
from hipq_django.domain.suspects import SUSPECT
from hipq_django.exceptions import ErrorAnswer, JobTimeout, WorkerLost
from hipq_django.models.base import JsonField, RowKey, RowManager
from hipq_django.models.job import Job


class AttemptQuerySet(models.QuerySet["Attempt"]):
    """The questions that are asked about failed attempts."""

    def of_suspects(self, workers: Collection[int | None]) -> AttemptQuerySet:
        """The losses that make suspects of jobs which these workers are executing."""
        running = Job.objects.using(self.db).running()
        executing = running.filter(worker__in=workers, prefetched=False)
        suspected = StartsWith(Cast("error", models.TextField()), f'"{SUSPECT}')
        return self.losses().filter(suspected, job__in=executing)

    def losses(self) -> AttemptQuerySet:
        """The losses of jobs that have run to no other end since; the last of each job.

        To be released is no end; to be snoozed is one, see `end_interruptions`.
        """
        lost = self.filter(kind__in=(Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER))
        return lost.newest().exclude(kind=Attempt.Kind.WORKER_LOST, losses=0)

    def newest(self) -> AttemptQuerySet:
        """The last failed attempt of each job."""
        later = Attempt.objects.filter(job=OuterRef("job"), attempt__gt=OuterRef("attempt"))
        return self.filter(~Exists(later))

    def end_interruptions(self, jobs: Collection[int]) -> None:
        """Note that attempts of jobs have ended well: what follows begins a new row."""
        self.filter(job__in=jobs, interrupted__gt=0).newest().update(losses=0, interrupted=0)

    def of_suspect_decisions(self, workers: Collection[int | None]) -> AttemptQuerySet:
        """The failures about which these workers are deciding, as others were when they died."""
        errors = Job.objects.using(self.db).in_error()
        deciding = errors.filter(worker__in=workers, prefetched=False)
        return self.filter(job__in=deciding, attempt=F("job__attempt"), lost_decisions__gt=0)


class Attempt(models.Model):
    """A failed attempt of a job."""

    class Kind(models.TextChoices):
        """What made the attempt fail."""

        RAISED = "raised", _("handler raised")
        TIMED_OUT = "timed_out", _("timed out")
        WORKER_LOST = "worker_lost", _("worker lost")
        BYSTANDER = "bystander", _("worker lost beside a suspect")
        ANSWERED = "answered", _("answered with an error")

    # Written beside the job's own change, by who has locked its row. A constraint in the database
    # would look for that row once more for each failure.
    job = RowKey(
        Job,
        models.CASCADE,
        verbose_name=_("job"),
        related_name="attempts",
        db_index=False,
        db_constraint=False,
    )
    attempt = models.PositiveIntegerField(_("attempt"))
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices, default=Kind.RAISED)
    error = JsonField(_("error"))
    exception_classes = JsonField(_("exception classes"), default=list, editable=False)
    traceback = models.TextField(_("traceback"), default=NONE)
    worker = models.CharField(_("worker"), max_length=200, default=NONE)
    start_time = models.DateTimeField(_("start time"), default=timezone.now)
    end_time = models.DateTimeField(_("end time"), default=timezone.now)
    # So that a decision reads the last row alone, however many there are.
    failures = models.PositiveIntegerField(
        _("failures"),
        default=1,
        editable=False,
        help_text=_("How many attempts have failed, this one included."),
    )
    losses = models.PositiveIntegerField(
        _("losses"),
        default=0,
        editable=False,
        help_text=_("How many attempts in a row, up to this one, lost their worker."),
    )
    interrupted = models.PositiveIntegerField(
        _("interrupted"),
        default=0,
        editable=False,
        help_text=_("How many attempts in a row lost their worker or ran out of time."),
    )

    lost_decisions = models.PositiveIntegerField(
        _("lost decisions"),
        default=0,
        editable=False,
        help_text=_("How many workers died while they decided what follows."),
    )
    # If no policy or retry handler has decided that. The engines leave it to the database.
    why_not_again = models.TextField(
        _("why not again"), default=NONE, db_default=NONE, editable=False
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
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering: ClassVar = ["job", "attempt"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "attempt"], name="hipq_attempt_unique")
        ]

    if TYPE_CHECKING:
        job_id: int

    def __str__(self) -> str:
        return f"attempt {self.attempt} of job {self.job_id}"
