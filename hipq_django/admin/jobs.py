"""Jobs: the list, and the page that says why a job is not running and what to press."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import OuterRef, QuerySet, Subquery, Sum, TextField
from django.db.models.functions import Cast, Coalesce, Left
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django import transitions
from hipq_django.admin.base import RowList, column
from hipq_django.admin.display import (
    NOTHING,
    age,
    badge,
    block,
    or_dash,
    plain,
    read_head,
    span,
    when,
    when_short,
    windows,
)
from hipq_django.admin.fields import EditForm, NumberField, checked
from hipq_django.admin.filters import (
    BatchFilter,
    EndedFilter,
    JobTypeFilter,
    OutcomeFilter,
    QueueFilter,
    StateFilter,
)
from hipq_django.admin.job_actions import JobActions
from hipq_django.admin.job_panel import answers_panel, panel, standing
from hipq_django.admin.job_relations import relations
from hipq_django.admin.previews import MAX_READ_CHARS, chars_of
from hipq_django.domain.job_options import EDITED, checks
from hipq_django.domain.states import NONE, WAITING, State
from hipq_django.domain.validation import aware_moment, checked_factor, checked_priority, id_from
from hipq_django.models import Answer, Job, JobType, Queue, Worker
from hipq_django.models.base import title
from hipq_django.models.masking import learn_answers, shown

ERROR_HEAD_CHARS = 120
MAX_FOUND = 1_000

EDITABLE = tuple(checks(EDITED))
READ_ONLY = ("scheduled", "priority", "factor")
SECTIONS = (
    (
        _("Job"),
        ("to_job_type", "to_queue", "key", "tries", "time_limit", "windows", "to_worker"),
    ),
    (_("Times"), ("created", "updated")),
    (_("Data"), ("data", "error_block", "result_block")),
)


class JobList(RowList):
    """Takes the head of each error only: a partner may have sent a megabyte of it."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the jobs of the list, with the heads of errors and what each was requeued as."""
        found = super().get_queryset(request, *args, **kwargs)
        # By a range and in the order of its index: else PostgreSQL may look through all jobs.
        others = Job.objects.using(found.db).order_by("-origin_id", "-pk")
        of_job = others.filter(origin__gte=OuterRef("pk"), origin__lte=OuterRef("pk"))
        head = Left(Cast("error", TextField()), ERROR_HEAD_CHARS)
        jobs: QuerySet[Any] = found.annotate(
            error_head=head, requeued_as=Subquery(of_job.values("pk")[:1])
        )
        return jobs

    def get_results(self, request: HttpRequest) -> None:
        """Mask the errors of the page: a field may be sensitive now that was not then.

        It takes the whole data, answers and error; where these are large, none is read or shown.
        """
        super().get_results(request)
        jobs = {job.pk: job for job in self.result_list if _has_secrets(job)}
        if not jobs:
            return
        answers = Answer.objects.filter(job=OuterRef("pk")).order_by().values("job")
        of_answers = Subquery(answers.values(size=Sum(chars_of("payload"))))
        size = chars_of("job_data") + chars_of("error") + Coalesce(of_answers, 0)
        small = self.root_queryset.filter(pk__in=jobs).annotate(size=size)
        small = small.filter(size__lte=MAX_READ_CHARS)
        errors = {}
        for pk, data, errors[pk] in small.values_list("pk", "job_data", "error"):
            jobs[pk].job_data = data
        learn_answers(jobs[pk] for pk in errors)
        for pk, job in jobs.items():
            job.error_head = gettext("too large for this list")
            if pk in errors:
                head = json.dumps(shown(job, errors[pk]), ensure_ascii=False)
                job.error_head = head[:ERROR_HEAD_CHARS]


def ids_with_key(jobs: Any, key: str) -> list[int]:
    """Ask each of the two indexes of keys, in the words of its condition.

    One has the live jobs and one the final jobs; both begin with the job type.
    """
    if key == NONE:
        return []
    types = list(JobType.objects.using(jobs.db).values_list("pk", flat=True))
    keyed = jobs.filter(job_type__in=types, job_key=key).keyed().order_by("-pk")
    found: list[int] = []
    for part in (keyed.live(), keyed.final()):
        found += part.values_list("pk", flat=True)[:MAX_FOUND]
    return found


def _has_secrets(job: Any) -> bool:
    return bool(job.job_type.sensitive_fields) and read_head(job.error_head) != NONE


def wanted_time(job: Job) -> datetime:
    """Return when the job is to run; of one that waits for others, from when on."""
    return job.hold_time or job.scheduled_run_time


class JobForm(EditForm):
    """What of a waiting job may be edited."""

    priority = NumberField(checked_priority, help_text=_("Lower values run sooner."))
    throttle_factor = NumberField(
        checked_factor,
        help_text=_("How much it counts against the limit; with 0 the limit never holds it back."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["scheduled_run_time"] = wanted_time(self.instance)

    def clean_scheduled_run_time(self) -> datetime:
        """Return the moment; raise `ValidationError` where `enqueue` would refuse it."""
        name = "scheduled_run_time"
        moment: datetime = checked(partial(aware_moment, name), self.cleaned_data[name])
        return moment


@admin.register(Job)
class JobAdmin(JobActions):
    """Waiting jobs may be edited; everything else happens by the actions."""

    form = JobForm
    change_form_template = "hipq_django/admin/job.html"
    list_class = JobList
    list_defer = ("job_data", "result", "error")
    list_display = (
        "id", "standing", "note", "to_job_type", "key", "to_queue", "attempt", "scheduled_short",
        "updated_short",
    )  # fmt: skip
    list_filter = (
        StateFilter, OutcomeFilter, EndedFilter, QueueFilter, JobTypeFilter, BatchFilter,
    )  # fmt: skip
    list_select_related = ("queue", "job_type", "worker")
    search_fields = ("job_key",)
    search_help_text = _("A complete job key or id.")
    sortable_by = ("id",)
    readonly_fields = ("scheduled", "factor", *(name for _, names in SECTIONS for name in names))

    # The list

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the order of the queues where a live state is chosen, else the newest job first.

        By their ids, the few jobs of a state would be looked for among all jobs, and so would those
        that ended lately.
        """
        if EndedFilter.parameter_name in request.GET:
            return EndedFilter.order
        return StateFilter.orders.get(request.GET.get("state", ""), ("-id",))

    def find(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return the jobs with exactly this key or id, so that indexes find them among millions."""
        return rows.filter(pk__in=[*ids_with_key(rows, term), *filter(None, [id_from(term)])])

    # What the list shows

    standing = column(_("state"), lambda self, job: badge(*standing(job)))

    @admin.display(description=_("details"))
    def note(self, job: Any) -> str:
        """What an operator asks first: since when, by whom, what went wrong."""
        if job.state in WAITING:
            return self._waiting_note(job)
        if job.state == State.RUNNING and job.is_awaiting_answer:
            return self._deadline_note(job)
        if job.state == State.RUNNING and job.worker:
            return _("worker %(worker)s") % {"worker": job.worker}
        if job.state == State.RUNNING:
            return gettext("answer has come; a worker will process it")
        return self._final_note(job)

    def _deadline_note(self, job: Any) -> str:
        said = self._until(job)
        if not job.progress:
            return said
        done = _("%(percent)s %% done, %(deadline)s")
        return done % {"percent": plain(job.progress), "deadline": said}

    def _until(self, job: Any) -> str:
        is_over = job.deadline <= self.now  # and no worker has timed the attempt out yet
        text = _("was due %(age)s") if is_over else _("times out %(age)s")
        return text % {"age": age(job.deadline, self.now)}

    def _final_note(self, job: Any) -> str:
        error = _first_line(job.error_head)
        if job.requeued_as is None:
            return error
        again = format_html("{} {}", gettext("requeued as"), self.job_link(job.requeued_as))
        return again if error == NOTHING else format_html("{}, {}", again, error)

    def _waiting_note(self, job: Any) -> str:
        moment = job.scheduled_run_time
        if job.hold_time is not None:
            parts = [gettext("waits for other jobs")]
        elif moment > self.now:
            parts = [_("due %(age)s") % {"age": age(moment, self.now)}]
        else:
            parts = [_("due for %(span)s") % {"span": span(self.now - moment)}]
        if job.queue.paused:
            parts.append(gettext("queue paused"))
        error = _first_line(job.error_head)
        if error != NOTHING:
            parts.append(_("after %(error)s") % {"error": error})
        return ", ".join(parts)

    scheduled_short = column(
        _("scheduled"), lambda self, job: when_short(wanted_time(job), self.now)
    )
    updated_short = column(_("updated"), lambda self, job: when_short(job.update_time, self.now))

    # What the page shows

    to_job_type = column(
        _("job type"), lambda self, job: self.link(JobType, job.job_type_id, job.job_type)
    )
    to_queue = column(_("queue"), lambda self, job: self.link(Queue, job.queue_id, job.queue))
    key = column(_("key"), lambda self, job: or_dash(job.job_key))
    scheduled = column(_("scheduled"), lambda self, job: when(wanted_time(job), self.now))
    factor = column(_("throttle factor"), lambda self, job: plain(job.throttle_factor))
    tries = column(_("attempt"), lambda self, job: str(job.attempt or gettext("none yet")))

    @admin.display(description=_("timeout"))
    def time_limit(self, job: Job) -> str:
        """How long an attempt may take, and until when a running one may."""
        parts = [_("%(seconds)s s for each attempt") % {"seconds": plain(job.timeout)}]
        if job.extended_seconds:
            more = plain(round(job.extended_seconds, 3))
            parts.append(_("%(seconds)s s more for this one") % {"seconds": more})
        if job.state == State.RUNNING:
            parts.append(self._until(job))
        return ", ".join(parts)

    windows = column(
        _("time windows"), lambda self, job: windows(job.time_windows, job.job_type.zone_name)
    )

    to_worker = column(
        _("worker"),
        lambda self, job: self.link(Worker, job.worker_id, job.worker) if job.worker else NOTHING,
    )

    @admin.display(description=_("job data"))
    def data(self, job: Job) -> str:
        """What the handler is given; of a task its arguments by name."""
        data = shown(job, job.job_data)
        if not (job.job_type.signature and isinstance(data, dict) and data):
            return block(data)
        rows = ((name, block(value) if value != "" else '""') for name, value in data.items())
        body = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', rows)
        return format_html('<table class="hipq-facts">{}</table>', body)

    error_block = column(_("error"), lambda self, job: block(shown(job, job.error)))
    result_block = column(_("result"), lambda self, job: block(shown(job, job.result)))

    # The page

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the jobs with what their pages name."""
        return super().get_queryset(request).select_related(*self.list_select_related)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields to edit where the job waits, and what there is to see."""
        editable = obj is not None and self.has_change_permission(request, obj)
        top = EDITABLE if editable else READ_ONLY
        return [(None, {"fields": top}), *((name, {"fields": fields}) for name, fields in SECTIONS)]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may edit jobs, and this one waits."""
        waits = obj is None or obj.state in WAITING
        return waits and super().has_change_permission(request)

    def beside_form(self, request: HttpRequest, row: Job) -> dict[str, Any]:
        """Return why the job is not running and the buttons, and what happened."""
        shown = {**super().beside_form(request, row), **panel(row, self.now)}
        if self.may_view(request, Answer):
            shown |= answers_panel(row, self.now, self.link)
            inbox = {"status": "no_job"}
            shown["inbox_url"] = self.list_url(Answer, inbox) if row.is_awaiting_answer else ""
        shown["relations"] = relations(row, self.link)
        shown["queue_url"] = self.url_if_any(Queue, "change", row.queue_id)
        return shown

    def why_not_edited(self, request: HttpRequest, object_id: str) -> str:
        """Return why this job cannot be edited by a user who may edit jobs."""
        job = self.get_object(request, unquote(object_id))
        if job is None or not super().has_change_permission(request):
            return ""
        text = _(
            "%(job)s was not changed: its state is %(state)s by now, attempt %(attempt)s. Only "
            "jobs in the states initial and retry can be edited; this page shows it as it is now."
        )
        state = job.get_state_display()
        return text % {"job": title(job), "state": state, "attempt": job.attempt}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write the edited values; the page has locked the job, so that no worker claims it."""
        row = Job.objects.using(obj.using).get(pk=obj.pk)
        if form.edited:
            transitions.edit(row, form.edited, self.now)
        moment = wanted_time(row)
        if moment != obj.scheduled_run_time and "scheduled_run_time" in form.edited:
            opening = timezone.localtime(moment)
            text = _("Its time windows moved it to %(time)s.")
            values = {"time": f"{opening:%Y-%m-%d %H:%M:%S %Z}"}
            self.message_user(request, text % values, messages.WARNING)
        obj.scheduled_run_time = moment


def _first_line(error: str) -> str:
    """Return the first line of an error, of which the head of its JSON is given."""
    text = read_head(error).partition("\n")[0]
    return NOTHING if text == NONE else text
