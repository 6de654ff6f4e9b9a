"""Job types: the defaults that new jobs copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.base import HipqAdmin, column
from hipq_django.admin.display import NOTHING, badge, plain, windows
from hipq_django.admin.fields import CheckedField, EditForm, NumberField, WindowsField
from hipq_django.conf.instances import get_arguments
from hipq_django.domain.validation import (
    checked_factor,
    checked_priority,
    checked_timeout,
    checked_zone,
)
from hipq_django.exceptions import ConfigurationError
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Job, JobType, Queue
from hipq_django.monitoring.endings import Trends


class JobTypeForm(EditForm):
    """What of a job type may be edited; jobs that exist keep their values."""

    default_timeout = NumberField(checked_timeout, help_text=_("Seconds for each attempt."))
    default_priority = NumberField(checked_priority, help_text=_("Lower values run sooner."))
    default_throttle_factor = NumberField(
        checked_factor,
        help_text=_(
            "How much a job counts against the limit; with 0 the limit never holds it back."
        ),
    )
    default_time_windows = WindowsField(
        help_text=_(
            "One on each line, such as 22:00-02:00 or mon-fri 05:00-07:00; empty: any time."
        )
    )
    time_zone = CheckedField(
        checked_zone,
        required=False,
        widget=forms.TextInput,
        help_text=_("Time zone of the time windows, such as Europe/Paris. Empty: the site's."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "queue" in self.fields:
            queues = Queue.objects.using(self.instance.queue.using)
            self.fields["queue"].queryset = queues.filter(instance=self.instance.instance)  # type: ignore[attr-defined]  # a ModelChoiceField


KNOWN = (
    "name", "instance", "code", "takes", "names", "response_handler", "retrying", "most_time",
    "sensitive_names", "lately", "jobs",
)  # fmt: skip
DEFAULTS = (
    "queue", "default_timeout", "default_priority", "default_throttle_factor",
    "default_time_windows", "time_zone",
)  # fmt: skip


@admin.register(JobType)
class JobTypeAdmin(HipqAdmin):
    """Name and handler belong to the code; the defaults may be edited."""

    form = JobTypeForm
    list_display = (
        "name", "instance", "to_queue", "timeout", "priority", "factor", "windows", "code",
        "lately", "jobs",
    )  # fmt: skip
    list_select_related = ("queue",)
    search_fields = ("name",)
    fieldsets = (
        (None, {"fields": KNOWN}),
        (
            _("Defaults of new jobs"),
            {"description": _("Existing jobs keep their values."), "fields": DEFAULTS},
        ),
        (_("Times"), {"fields": ("created", "updated")}),
    )
    readonly_fields = (*KNOWN, "created", "updated", "to_queue")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields; a queue that cannot be edited is linked for those who may see it."""
        given: Any = super().get_fieldsets(request, obj)
        if self.has_change_permission(request, obj):
            return given
        linked = {**given[1][1], "fields": ("to_queue", *DEFAULTS[1:])}
        return [given[0], (given[1][0], linked), *given[2:]]

    def prepare(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        """Give job types their trends, and what this process's code declares."""
        trends = Trends({row.queue for row in rows}, self.now, self.database)
        for row in rows:
            row.trend = trends.of(row)
            row.declared = get_declared(row.instance, row.name)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write the edited fields."""
        self.save_changes(obj, form)

    @admin.display(description=_("queue"))
    def to_queue(self, job_type: JobType) -> str:
        """The queue of new jobs."""
        return self.link(Queue, job_type.queue_id, job_type.queue)

    timeout = column(_("timeout"), lambda self, job_type: f"{plain(job_type.default_timeout)} s")
    priority = column(_("priority"), lambda self, job_type: job_type.default_priority)
    factor = column(_("factor"), lambda self, job_type: plain(job_type.default_throttle_factor))

    windows = column(
        _("time windows"),
        lambda self, job_type: windows(job_type.default_time_windows, job_type.zone_name),
    )

    @admin.display(description=_("handler"))
    def code(self, job_type: Any) -> str:
        """The function that runs the jobs."""
        if job_type.declared is None:
            return badge(gettext("no code declares it"), "error")
        handler = job_type.declared.handler
        return f"{handler.__module__}.{handler.__qualname__}"

    @admin.display(description=_("arguments"))
    def takes(self, job_type: JobType) -> str:
        """What the function of a task takes, and what converts its arguments."""
        if not job_type.signature:
            return gettext("the whole job")
        try:
            converter = get_arguments(job_type.instance)
            said = f"{type(converter).__module__}.{type(converter).__qualname__}"
        except ConfigurationError as error:
            said = str(error)
        return format_html("<code>{}</code> ({})", job_type.signature, said)

    names = column(
        _("aliases"),
        lambda self, row: ", ".join(row.declared.aliases if row.declared else ()) or NOTHING,
    )

    response_handler = column(
        _("response handler"),
        lambda self, row: (
            _name_of(row.declared and row.declared.response_handler)
            or gettext("none: the response is the result")
        ),
    )

    @admin.display(description=_("after an error"))
    def retrying(self, job_type: Any) -> str:
        """What decides whether a job is tried again."""
        declared = job_type.declared
        decides = declared and (declared.retry_handler or declared.policy)
        return _name_of(decides) or gettext("no retry")

    @admin.display(description=_("longest attempt"))
    def most_time(self, job_type: Any) -> str:
        """How long an attempt may take when the other system asks for more time."""
        most = job_type.declared and job_type.declared.max_timeout
        return gettext("ten times its timeout") if most is None else f"{plain(most)} s"

    @admin.display(description=_("masked fields"))
    def sensitive_names(self, job_type: JobType) -> str:
        """The fields of data and answers whose values nobody is shown."""
        return ", ".join(job_type.sensitive_fields) or gettext("none")

    @admin.display(description=_("in the last hour"))
    def lately(self, job_type: Any) -> str:
        """How its jobs have ended, and whether more fail than usual."""
        parts = (self.endings(job_type, "type"), *self.trend_badges(job_type.trend))
        return format_html_join(" ", "{}", ((part,) for part in parts))

    @admin.display(description=_("jobs"))
    def jobs(self, job_type: JobType) -> str:
        """A link to the jobs of this type."""
        return self.list_link(Job, _("list"), {"type": job_type.pk})


def _name_of(declared: Any) -> str:
    """Return the name of a function, or how a policy is written; '' for None."""
    return getattr(declared, "__qualname__", repr(declared)) if declared else ""
