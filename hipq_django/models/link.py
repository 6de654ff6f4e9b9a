"""Links: what a job waits for, or has waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.dependencies import ON, PART
from hipq_django.domain.parts import MAX_PART_CHARS, UNNAMED
from hipq_django.models.base import Row, RowKey, RowManager
from hipq_django.models.batch import Batch
from hipq_django.models.job import Job

UNTOLD = models.Q(on=PART, is_told=False)
"""Links of parts whose jobs have not been told of them."""


class Link(Row):
    """One thing that a job waits for, or has waited for: another job, or all jobs of a batch.

    Either it is held until then; or, with `on` as "part", it runs, and the other job's end is the
    answer for one of its parts.
    """

    # A constraint in the database would cost each update of any job a look at its old row.
    job = RowKey(
        Job,
        models.CASCADE,
        verbose_name=_("job"),
        related_name="needs",
        db_constraint=False,
        db_index=False,
    )
    # What was waited for may be pruned before the job that followed it.
    needs_job = RowKey(
        Job,
        models.DO_NOTHING,
        verbose_name=_("needs job"),
        related_name="dependents",
        null=True,
        db_constraint=False,
        db_index=False,
    )
    needs_batch = RowKey(
        Batch,
        models.DO_NOTHING,
        verbose_name=_("needs batch"),
        related_name="dependents",
        null=True,
        db_constraint=False,
        db_index=False,
    )
    on = models.CharField(_("on"), max_length=10, default="succeeded")
    part = models.CharField(_("part"), max_length=MAX_PART_CHARS, default=UNNAMED, blank=True)
    is_told = models.BooleanField(
        _("is told"), default=False, help_text=_("Whether the job was answered for this part.")
    )

    objects = RowManager()

    if TYPE_CHECKING:
        job_id: int
        needs_job_id: int | None
        needs_batch_id: int | None

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("link")
        verbose_name_plural = _("links")
        constraints: ClassVar = [
            # Of all links, those to batches too: it is also the index by which those of a job are
            # found and deleted.
            models.UniqueConstraint(fields=["job", "needs_job"], name="hipq_link_job_unique"),
            models.UniqueConstraint(
                fields=["job", "needs_batch"],
                condition=models.Q(needs_batch__isnull=False),
                name="hipq_link_batch_unique",
            ),
            models.CheckConstraint(
                condition=models.Q(on__in=(*ON, PART))
                & (
                    models.Q(needs_job__isnull=False, needs_batch__isnull=True)
                    | models.Q(needs_job__isnull=True, needs_batch__isnull=False)
                ),
                name="hipq_link_needs_one",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["needs_job"],
                condition=models.Q(needs_job__isnull=False),
                name="hipq_link_needs_job",
            ),
            models.Index(
                fields=["needs_batch"],
                condition=models.Q(needs_batch__isnull=False),
                name="hipq_link_needs_batch",
            ),
            models.Index(
                fields=["id"],
                condition=UNTOLD,
                name="hipq_link_untold",
            ),
        ]

    def __str__(self) -> str:
        needed = self.needs_job_id or f"batch {self.needs_batch_id}"
        return f"job {self.job_id} after {needed}"
