"""Schedules: when jobs are made by themselves, and what became of each due time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.redaction import Redactor
from hipq_django.domain.schedules import (
    CATCH_UPS,
    MAX_CRON_CHARS,
    MAX_NAME_CHARS,
    OVERLAPS,
    SHARED,
    Cron,
    Every,
    in_zone,
)
from hipq_django.domain.states import NONE
from hipq_django.models.base import JsonField, Row, RowKey, RowManager
from hipq_django.models.job_type import JobType

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager

OVERLAP_NAMES = {
    "skip": _("skip"),
    "allow": _("allow"),
    "wait": _("wait"),
    "replace": _("replace"),
}
CATCH_UP_NAMES = {"none": _("none"), "last": _("last"), "all": _("all")}


class Schedule(Row):
    """What makes a job at each of its due times. The row is what counts, read under its lock."""

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=MAX_NAME_CHARS)
    job_type = RowKey(JobType, models.PROTECT, verbose_name=_("job type"), related_name="schedules")
    job_data = JsonField(_("job data"), default=dict, blank=True)
    options = JsonField(
        _("options"),
        default=dict,
        editable=False,
        help_text=_("Options of its jobs: queue, priority, …"),
    )
    cron = models.CharField(_("cron"), max_length=MAX_CRON_CHARS, default="", blank=True)
    every_seconds = models.FloatField(_("every seconds"), null=True, blank=True)
    time_zone = models.CharField(
        _("time zone"),
        max_length=100,
        default="",
        blank=True,
        help_text=_("Time zone of the cron text. Empty: the site's."),
    )
    jitter = models.FloatField(
        _("jitter"), default=0, help_text=_("Longest delay of a job, in seconds.")
    )
    overlap = models.CharField(
        _("overlap"),
        max_length=10,
        choices=[(name, OVERLAP_NAMES[name]) for name in OVERLAPS],
        default="skip",
    )
    catch_up = models.CharField(
        _("catch up"),
        max_length=10,
        choices=[(name, CATCH_UP_NAMES[name]) for name in CATCH_UPS],
        default="last",
    )
    catch_up_seconds = models.FloatField(_("catch up seconds"), default=86_400)
    start_time = models.DateTimeField(_("start time"), null=True, blank=True)
    end_time = models.DateTimeField(_("end time"), null=True, blank=True)
    next_time = models.DateTimeField(_("next time"), null=True, blank=True, editable=False)
    paused = models.BooleanField(_("paused"), default=False, editable=False)
    pause_reason = models.TextField(_("pause reason"), default=NONE, editable=False)
    retired = models.BooleanField(
        _("retired"),
        default=False,
        editable=False,
        help_text=_("No live worker has the code that declares it."),
    )
    seen_time = models.DateTimeField(
        _("seen time"),
        null=True,
        editable=False,
        help_text=_("When a worker that declares it was last registered."),
    )
    problem = models.TextField(_("problem"), default=NONE, editable=False)
    declared = JsonField(_("declared"), default=dict, editable=False)
    create_time = models.DateTimeField(_("create time"), default=timezone.now, editable=False)
    update_time = models.DateTimeField(_("update time"), default=timezone.now, editable=False)

    objects = RowManager()

    if TYPE_CHECKING:
        runs: RelatedManager[ScheduleRun]

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering: ClassVar = ["instance", "name"]
        permissions: ClassVar = [
            ("run_schedule", "Can run schedules now, and for times that have passed"),
            ("pause_schedule", "Can pause and resume schedules"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["instance", "name"], name="hipq_schedule_name_unique"),
            models.CheckConstraint(
                condition=(Q(cron="") & Q(every_seconds__isnull=False) & Q(every_seconds__gte=1))
                | (~Q(cron="") & Q(every_seconds__isnull=True)),
                name="hipq_schedule_has_one_spec",
            ),
            models.CheckConstraint(
                condition=Q(overlap__in=OVERLAPS)
                & Q(catch_up__in=CATCH_UPS)
                & Q(jitter__gte=0)
                & Q(catch_up_seconds__gte=0),
                name="hipq_schedule_ranges",
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["instance", "next_time"],
                condition=Q(paused=False, retired=False, next_time__isnull=False),
                name="hipq_schedule_next",
            ),
        ]

    @property
    def log_fields(self) -> dict[str, Any]:
        """The field of a log line that says which schedule it is about."""
        return {"schedule": self.name}

    @property
    def redactor(self) -> Redactor:
        """What masks the sensitive values of its data."""
        return self.job_type.redactor.knowing(self.job_data)

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> Cron | Every:
        """When it is due; raise `InvalidScheduleError` where the row cannot be read."""
        shared = {name: getattr(self, name) for name in SHARED}
        if self.cron:
            return Cron(self.cron, self.time_zone, **shared)
        return Every(seconds=self.every_seconds or 0, **shared)

    def shown(self, due_time: datetime) -> datetime:
        """Return a due time as its job sees it: that of a cron text in its zone, else in UTC."""
        return in_zone(due_time, self.time_zone if self.cron else "UTC")

    @property
    def is_declared(self) -> bool:
        """Whether code declares it, or has."""
        return bool(self.declared)


class ScheduleRun(Row):
    """What became of a due time, or of several that were skipped together."""

    class Kind(models.TextChoices):
        """How it came, or why nothing came of it."""

        FIRED = "fired", _("fired")
        MANUAL = "manual", _("run by hand")
        BACKFILLED = "backfilled", _("backfilled")
        SKIPPED = "skipped", _("skipped")
        MISSED = "missed", _("missed")

    schedule = RowKey(
        Schedule, models.CASCADE, verbose_name=_("schedule"), related_name="runs", db_index=False
    )
    due_time = models.DateTimeField(_("due time"))
    kind = models.CharField(_("kind"), max_length=10, choices=Kind.choices)
    until = models.DateTimeField(
        _("until"), null=True, help_text=_("The last of several due times.")
    )
    count = models.PositiveIntegerField(_("count"), default=1)
    reason = models.TextField(_("reason"), default=NONE)
    # The job may be pruned before the run.
    job_id: models.BigIntegerField[int | None, int | None] = models.BigIntegerField(
        _("job id"), null=True
    )
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("schedule run")
        verbose_name_plural = _("schedule runs")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["schedule", "due_time"],
                condition=Q(kind__in=["fired", "backfilled"]),
                name="hipq_schedule_run_once",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["schedule", "due_time"], name="hipq_schedule_run_time"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} at {self.due_time:%Y-%m-%d %H:%M:%S %Z}"

    @property
    def last_time(self) -> datetime:
        """The last due time that it is about."""
        return self.until or self.due_time
