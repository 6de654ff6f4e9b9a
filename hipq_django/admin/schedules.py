"""Schedules: when they are due, what became of their due times, and what an operator presses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from hipq_django.admin import schedule_runs, schedule_times
from hipq_django.admin.base import column
from hipq_django.admin.display import NOTHING, badge, format_number, local_text, when
from hipq_django.admin.row_actions import RowActions, Verb, by_name
from hipq_django.admin.schedule_form import BackfillForm, ScheduleForm, TimesForm
from hipq_django.conf.instances import get_instances
from hipq_django.domain.states import NONE
from hipq_django.models import Job, JobType, Schedule
from hipq_django.models.masking import shown
from hipq_django.schedules import api


class Backfilled(NamedTuple):
    """The span whose due times were made jobs, and how many."""

    start: datetime
    end: datetime
    made: int


MOST_LIVE = 10
"""How many live jobs of a schedule are named."""


def _backfill(row: Schedule, start: datetime, end: datetime) -> Backfilled:
    jobs = api.backfill(row.name, start, end, instance=row.instance)
    return Backfilled(start, end, len(jobs))


VERBS = by_name(
    Verb(
        "run_now", _("Run now"), "run_schedule",
        lambda row: api.run_schedule(row.name, instance=row.instance),
        done=_("Run by hand"),
        action=_("Run the selected schedules now"),
    ),
    Verb(
        "pause", _("Pause"), "pause_schedule",
        lambda row: api.pause_schedule(row.name, instance=row.instance),
        done=_("Paused"),
        action=_("Pause the selected schedules"),
        is_of_use=lambda row, now: not row.paused,
        among=lambda rows, now: rows.filter(paused=False),
        useless=_("it is paused already."),
        is_locked=True,
    ),
    Verb(
        "resume", _("Resume"), "pause_schedule",
        lambda row: api.resume_schedule(row.name, instance=row.instance),
        done=_("Resumed"),
        action=_("Resume the selected schedules"),
        is_of_use=lambda row, now: row.paused,
        among=lambda rows, now: rows.filter(paused=True),
        useless=_("it is not paused."),
        is_locked=True,
    ),
    Verb(
        "backfill", _("Backfill"), "run_schedule", _backfill, done=_("Backfilled"),
        warning=lambda row: _(
            "A job is made for each due time in this span that has none yet. They run one "
            "after the other, unless the schedule allows them to overlap."
        ),
        confirm=_("Make the jobs"),
        form=BackfillForm,
    ),
    Verb(
        "delete", _("Delete"), "delete_schedule",
        lambda row: api.unschedule(row.name, instance=row.instance),
        done=_("Deleted"),
        action=_("Delete the selected schedules"),
        is_possible=lambda row: not api.belongs_to_code(row),
        warning=lambda row: _(
            "The schedule and the record of its due times are deleted. Its jobs stay."
        ),
        confirm=_("Delete this schedule"),
        is_dangerous=True,
    ),
)  # fmt: skip


@admin.register(Schedule)
class ScheduleAdmin(RowActions):
    """What makes jobs by itself. Of one that the code declares, the times may be changed here."""

    form = ScheduleForm
    change_form_template = "hipq_django/admin/schedule.html"

    list_display = ("name", "condition", "times", "next_due", "last_run", "job_type")
    list_filter = ("instance", "paused", "retired")
    list_select_related = ("job_type",)
    search_fields = ("name",)
    shown = (
        "name", "instance", "source", "condition", "times", "next_due", "upcoming",
        "live_jobs",
        "overlap", "catch_up", "jitter", "to_job_type", "data", "runs_shown",
    )  # fmt: skip
    known = ("instance", "upcoming", "live_jobs", "runs_shown")
    """What an editable page shows beside the form."""
    of_code = ("name", "to_job_type", "data", "source")
    """What it shows, too, of one that the code declares."""
    actions = ("run_now", "pause", "resume", "delete")
    verbs = VERBS

    # The page

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may make schedules."""
        return request.user.has_perm("hipq.add_schedule")

    @property
    def places(self) -> list[str]:
        """The instances whose schedules are shown."""
        return [config.name for config in get_instances() if config.database == self.database]

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form: of one that the code declares the times alone."""
        if obj is not None and obj.is_declared:
            kwargs["form"] = TimesForm
        form = super().get_form(request, obj, change, **kwargs)
        form.using, form.places = self.database, self.places  # type: ignore[attr-defined]  # of the class made just now
        return form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the form's fields where it may be edited, else all that there is to see."""
        own = ScheduleForm.Meta.fields
        if obj is None:
            return ("instance", *own) if len(self.places) > 1 else own
        if not self.has_change_permission(request, obj):
            return self.shown
        if obj.is_declared:
            return (*self.of_code, *schedule_times.TIMES, *self.known)
        return (*own, *self.known)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what no form has."""
        if obj is None:
            return ()
        if not self.has_change_permission(request, obj):
            return self.shown
        return (*self.of_code, *self.known) if obj.is_declared else self.known

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        """Write the schedule as the verb does; what it refuses has been said by the form."""
        return form.write() if change or form.is_valid() else form.instance

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Do nothing more: the verb has written it."""

    def save_related(self, *args: Any) -> None:
        """Do nothing either: a schedule has no lists of others."""

    def construct_change_message(  # type: ignore[override]  # the stubs name other types
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> str:
        """Return what the history keeps, in English: the names alone, for values may be secret."""
        if add:
            return "Made by hand."
        changed = ", ".join(name.replace("_", " ") for name in form.changed_data)
        return f"Changed {changed}." if changed else "No fields changed."

    @admin.display(description=_("source"))
    def source(self, row: Schedule) -> str:
        """Where it comes from."""
        if row.is_declared:
            return gettext(
                "declared in code; if the times are changed here, they stay until hipq_sync --reset"
            )
        return gettext("made here, or by hipq.schedule")

    def beside_form(self, request: HttpRequest, row: Schedule) -> dict[str, Any]:
        """Return where it stands, and the buttons."""
        due = format_html("{}: {}", _("Next due time"), self.next_due(row))
        standing = [self.condition(row), self.times(row), due]
        return {**super().beside_form(request, row), "standing": standing}

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show the times that are not saved yet."""
        form, row = context["adminform"].form, context["original"]
        context["may_preview"] = row is None or self.has_change_permission(request, row)
        if form.is_bound and form.is_preview and not form.errors:
            context["preview"] = {
                "times": schedule_times.written(form.spec),
                "upcoming": schedule_times.upcoming(form.spec, self.now),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description=_("state"))
    def condition(self, row: Schedule) -> str:
        """What keeps it from being fired, if anything does."""
        found = list(self._obstacles(row)) or [(badge(gettext("active"), "running"), "")]
        return format_html_join(" ", "{} {}", found)

    def _obstacles(self, row: Schedule) -> Iterator[tuple[str, str]]:
        """Yield a badge for each, with the reason."""
        if row.problem != NONE:
            yield badge(gettext("in trouble"), "error"), row.problem
        if row.paused:
            reason = "" if row.pause_reason == NONE else row.pause_reason
            yield badge(gettext("paused"), "cancelled"), reason
        if row.retired:
            yield badge(gettext("retired"), "cancelled"), ""

    times = column(_("times"), lambda self, row: schedule_times.of_row(row, schedule_times.written))

    to_job_type = column(
        _("job type"), lambda self, row: self.link(JobType, row.job_type_id, row.job_type)
    )

    @admin.display(description=_("next due time"))
    def next_due(self, row: Schedule) -> str:
        """When it is due; one that has passed while nothing is fired says nothing."""
        now = self.now
        if row.next_time is None:
            return gettext("never")
        is_idle = row.paused or row.retired
        return NOTHING if is_idle and row.next_time < now else when(row.next_time, now)

    @admin.display(description=_("next due times"))
    def upcoming(self, row: Schedule) -> str:
        """The next five, in the zone of the schedule and in UTC."""
        return schedule_times.of_row(row, lambda spec: schedule_times.upcoming(spec, self.now))

    @admin.display(description=_("live jobs"))
    def live_jobs(self, row: Schedule) -> str:
        """Links to its jobs that have not ended."""
        jobs = Job.objects.using(self.database).live().filter(schedule_id=row.pk)
        ids = list(jobs.order_by("pk").values_list("pk", flat=True)[: MOST_LIVE + 1])
        links = format_html_join(", ", "{}", ((self.job_link(pk),) for pk in ids[:MOST_LIVE]))
        return format_html("{}{}", links or NOTHING, ", …" if len(ids) > MOST_LIVE else "")

    def prepare(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        """Give schedules what became of their last due times."""
        last = schedule_runs.last_of(rows)
        for row in rows:
            row.last = last.get(row.pk)

    @admin.display(description=_("last due time"))
    def last_run(self, row: Any) -> str:
        """What became of the last one."""
        return schedule_runs.line(row.last, self.now, self.link) if row.last else NOTHING

    @admin.display(description=_("what became of its due times"))
    def runs_shown(self, row: Schedule) -> str:
        """Two weeks as dots, and the last twenty."""
        return schedule_runs.history(row, self.now, self.link)

    @admin.display(description=_("job data"))
    def data(self, row: Schedule) -> str:
        """What its jobs are given, without the values of sensitive fields."""
        data = shown(row, row.job_data)
        return format_html("<pre>{}</pre>", json.dumps(data, indent=2, ensure_ascii=False))

    # Actions

    def url_after(self, row: Schedule, result: Any) -> str:
        """Return the address of the list where the schedule was deleted, else that of its page."""
        return self.url(Schedule, "changelist") if result is None else self.row_url(row)

    def said(self, verb: Verb, before: Any, result: Any) -> str:
        """Return what was done, with the job that was made."""
        if isinstance(result, Job):
            return gettext("Run by hand as job %(id)s") % {"id": result.pk}
        if isinstance(result, Backfilled):
            text = ngettext(
                "Backfilled %(start)s to %(end)s, %(count)s job",
                "Backfilled %(start)s to %(end)s, %(count)s jobs",
                result.made,
            )
            start, end = local_text(result.start), local_text(result.end)
            return text % {"start": start, "end": end, "count": format_number(result.made)}
        return super().said(verb, before, result)
