"""The inbox: every answer that came, whatever became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.parts import UNNAMED
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.states import NONE, AnswerKind, AnswerStatus
from hipq_django.domain.validation import MAX_KEY_CHARS, MAX_TYPE_NAME_CHARS
from hipq_django.job_types.registry import get_declared
from hipq_django.models.base import JsonField, Row, RowKey, RowManager
from hipq_django.models.job import Job
from hipq_django.models.job_type import JobType, redactor_of_all

MAX_MESSAGE_ID_CHARS = 255


class Answer(Row):
    """An answer of another system."""

    Kind = AnswerKind
    Status = AnswerStatus

    instance = models.CharField(_("instance"), max_length=100, default="default")
    job_type = models.CharField(_("job type"), max_length=MAX_TYPE_NAME_CHARS)
    job_key = models.CharField(_("job key"), max_length=MAX_KEY_CHARS, default=NONE)
    job = RowKey(
        Job,
        models.CASCADE,
        verbose_name=_("job"),
        related_name="answers",
        null=True,
        blank=True,
        db_index=False,
    )
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    part = models.CharField(
        _("part"),
        max_length=100,
        default=UNNAMED,
        blank=True,
        help_text=_("Which of several answers to one job it is."),
    )
    message_id = models.CharField(_("message id"), max_length=MAX_MESSAGE_ID_CHARS, default=NONE)
    kind = models.CharField(_("kind"), max_length=10, choices=AnswerKind.choices)
    payload = JsonField(_("payload"))
    problem = models.TextField(
        _("problem"), default=NONE, help_text=_("Why a message is not an answer.")
    )
    status = models.CharField(_("status"), max_length=10, choices=AnswerStatus.choices)
    receive_time = models.DateTimeField(_("receive time"), default=timezone.now)

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("answer")
        verbose_name_plural = _("answers")
        ordering: ClassVar = ["-id"]
        permissions: ClassVar = [("match_answer", "Can match answers to jobs")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["instance", "job_type", "message_id"],
                condition=~Q(message_id=NONE),
                name="hipq_answer_message_unique",
            ),
            models.UniqueConstraint(
                fields=["job", "part"],
                condition=Q(status="accepted", kind="response"),
                name="hipq_answer_one_accepted",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["early", "unmatched"]) | Q(job__isnull=False),
                name="hipq_answer_has_job",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["response", "error"], problem=NONE)
                | (Q(kind="malformed", status="unmatched") & ~Q(problem=NONE)),
                name="hipq_answer_malformed_has_problem",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["job_type", "job_key"],
                condition=Q(status="early"),
                name="hipq_answer_early",
            ),
            models.Index(fields=["job"], name="hipq_answer_job"),
            # What an operator looks for among millions of answers that were accepted.
            models.Index(
                fields=["id"], condition=~Q(status="accepted"), name="hipq_answer_not_accepted"
            ),
            models.Index(fields=["id"], condition=Q(kind="error"), name="hipq_answer_error"),
        ]

    JOBLESS: ClassVar = (AnswerStatus.EARLY, AnswerStatus.UNMATCHED)
    """The statuses in which no job may have the answer."""

    if TYPE_CHECKING:
        job_id: int | None

    def __str__(self) -> str:
        return f"answer {self.pk} for {self.job_type} {self.job_key}"

    @property
    def redactor(self) -> Redactor:
        """What masks its sensitive values, and those of its job's data."""
        known = self._redactor_by_name if self.job is None else self.job.redactor
        return known.knowing(self.payload)

    @property
    def _redactor_by_name(self) -> Redactor:
        """Of a type that nobody knows, as if its job was pruned, it may have the fields of any."""
        types = JobType.objects.using(self.using).filter(instance=self.instance)
        row = types.filter(name=self.job_type).first()
        is_known = row is not None or get_declared(self.instance, self.job_type) is not None
        if is_known or self.kind == self.Kind.MALFORMED:
            return (row or JobType(instance=self.instance, name=self.job_type)).redactor
        return redactor_of_all(self.instance, self.using)

    @property
    def is_free(self) -> bool:
        """Whether it is an answer that no job has, and that may be matched to one by hand."""
        is_answer = self.kind in (self.Kind.RESPONSE, self.Kind.ERROR)
        return is_answer and self.status in self.JOBLESS and self.job_id is None
