"""Job types: the defaults that new jobs copy."""

from __future__ import annotations

from collections.abc import Collection
from datetime import tzinfo
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.job_options import DEFAULTS
from hipq_django.domain.redaction import NOTHING_SENSITIVE, Redactor
from hipq_django.domain.uniqueness import Unique
from hipq_django.domain.validation import MAX_TYPE_NAME_CHARS
from hipq_django.exceptions import ConfigurationError
from hipq_django.job_types.registry import get_declared, sensitive_fields
from hipq_django.models.base import JsonField, RowKey, RowManager, factor_field
from hipq_django.models.queue import Queue


class JobType(models.Model):
    """A job type of an instance. Its code is found by `name`, never edited here."""

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=MAX_TYPE_NAME_CHARS)
    queue = RowKey(Queue, models.PROTECT, verbose_name=_("queue"), related_name="job_types")
    default_timeout = models.FloatField(
        _("default timeout"), default=DEFAULTS["default_timeout"], help_text=_("Seconds.")
    )
    default_priority = models.IntegerField(
        _("default priority"),
        default=DEFAULTS["default_priority"],
        help_text=_("Lower values run sooner."),
    )
    default_throttle_factor = factor_field(
        DEFAULTS["default_throttle_factor"], _("default throttle factor")
    )
    default_time_windows = JsonField(_("default time windows"), default=list, blank=True)
    time_zone = models.CharField(
        _("time zone"),
        max_length=100,
        default="",
        blank=True,
        help_text=_("Time zone of the time windows. Empty: the site's."),
    )
    has_response_handler = models.BooleanField(
        _("has response handler"), default=False, editable=False
    )
    counted_answers = models.BooleanField(_("counted answers"), default=False, editable=False)
    sensitive = JsonField(_("sensitive"), default=list, editable=False)
    signature = models.TextField(
        _("signature"),
        default="",
        editable=False,
        help_text=_("What the function of a task takes."),
    )
    kind = models.CharField(
        _("kind"),
        max_length=100,
        default="",
        editable=False,
        help_text=_("How workers find code that no module of jobs declares; empty: not at all."),
    )
    unique = JsonField(_("unique"), default=dict, blank=True, editable=False)
    declared = JsonField(_("declared"), default=dict, editable=False)
    create_time = models.DateTimeField(_("create time"), default=timezone.now, editable=False)
    update_time = models.DateTimeField(_("update time"), default=timezone.now, editable=False)

    versions: tuple[str, ...] | None = None
    """Those of this row and its queue's as they were read; None where nobody looked."""

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("job type")
        verbose_name_plural = _("job types")
        ordering: ClassVar = ["instance", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["instance", "name"], name="hipq_jobtype_name_unique"),
            models.CheckConstraint(
                condition=models.Q(default_timeout__gt=0, default_timeout__lte=400_000_000)
                & models.Q(default_throttle_factor__gte=0)
                & models.Q(default_priority__gte=-1_000_000, default_priority__lte=1_000_000),
                name="hipq_jobtype_ranges",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Check the values; the form knows the queues, of this row's database and instance.

        Django would ask the database that a router names for reads.
        """
        super().clean_fields({*(exclude or ()), "queue"})

    @cached_property
    def redactor(self) -> Redactor:
        """What masks the sensitive fields: those of the row, and those of this process's code.

        Each may be ahead of the other while a new version is rolled out. Both stay as they are in
        a copy of the row, but for one that is brought up to the code.
        """
        declared = get_declared(self.instance, self.name)
        in_code = declared.sensitive if declared else ()
        if not self.sensitive and not in_code:
            return NOTHING_SENSITIVE
        return Redactor(tuple(sorted({*self.sensitive, *in_code})))

    @property
    def sensitive_fields(self) -> tuple[str, ...]:
        """The fields that are masked, by the row or by this process's code."""
        return self.redactor.fields

    def masks(self, name: str) -> bool:
        """Return whether all that a sensitive field of another job type names is masked here."""
        return self.redactor.covers(name)

    @property
    def uniqueness(self) -> Unique | None:
        """Which jobs may not be there twice, also for those who have no code for this type."""
        return Unique.from_json(self.unique) if self.unique else None

    def compared(self, job_data: Any) -> Any:
        """Return the data of a job in the form in which those of unique jobs are compared."""
        declared = get_declared(self.instance, self.name)
        return declared.compared(job_data) if declared else job_data

    @property
    def zone_name(self) -> str:
        """The name of the time zone of the time windows."""
        return self.time_zone or settings.TIME_ZONE or "UTC"

    @property
    def zone(self) -> tzinfo:
        """That time zone; raise `ConfigurationError` where this machine lacks it."""
        try:
            return ZoneInfo(self.zone_name)
        except (ValueError, OSError, KeyError) as error:
            raise ConfigurationError(
                f"job type {self.name!r} has time zone {self.zone_name!r}, which this machine does "
                "not know; install its zone data here (pip install tzdata), or change the zone."
            ) from error


def redactor_of_all(instance: str, using: str) -> Redactor:
    """Return what masks the sensitive fields of all job types of an instance.

    It is for values of which nobody can say which types they belong to.
    """
    rows = JobType.objects.using(using).filter(instance=instance).exclude(sensitive=[])
    stored = {name for names in rows.values_list("sensitive", flat=True) for name in names}
    return Redactor(tuple(sorted({*stored, *sensitive_fields(instance)})))
