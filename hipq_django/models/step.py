"""Steps: what the handler of a job has done once and for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.models.base import JsonField, Row, RowKey, RowManager
from hipq_django.models.job import Job

MAX_STEP_CHARS = 200


class Step(Row):
    """One step of a job's handler, with its result: later attempts do not call it again."""

    # A constraint in the database would cost each update of any job a look at its old row.
    job = RowKey(
        Job,
        models.CASCADE,
        verbose_name=_("job"),
        related_name="steps",
        db_constraint=False,
        db_index=False,
    )
    name = models.CharField(_("name"), max_length=MAX_STEP_CHARS)
    result = JsonField(_("result"), default=None)
    attempt = models.PositiveIntegerField(_("attempt"))
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects = RowManager()

    if TYPE_CHECKING:
        job_id: int

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "name"], name="hipq_step_unique"),
        ]

    def __str__(self) -> str:
        return f"step {self.name!r} of job {self.job_id}"
