"""Batches: how far each is, and cancelling one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _, ngettext

from hipq_django.admin.base import ReadOnlyAdmin, RowList, column
from hipq_django.admin.display import badge, format_number, or_dash, when
from hipq_django.admin.job_panel import standing
from hipq_django.admin.row_actions import RowActions, Verb
from hipq_django.api.batches import cancel_batch
from hipq_django.domain.states import LIVE, NONE, UNSUCCESSFUL, State
from hipq_django.models import Batch, Job
from hipq_django.models.base import title
from hipq_django.monitoring.counts import OverFirst, format_count

MOST_MEMBERS = 20
"""How many jobs of a batch its page lists."""

LARGE = ("job_data", "result", "error")

PARTS = {
    "live": Q(state__in=LIVE),
    "succeeded": Q(state=State.FINAL, outcome="succeeded"),
    "unsuccessful": Q(state=State.FINAL, outcome__in=UNSUCCESSFUL),
}
"""Where the jobs of a batch stand, by its index."""


def _has_live(batch: Batch, now: datetime) -> bool:
    """Whether jobs of it are live, or the one that follows their success."""
    jobs = Job.objects.using(batch.using)
    return jobs.live().filter(batch=batch).exists() or jobs.then_of(batch).exists()


def _with_live(batches: QuerySet[Any], now: datetime) -> QuerySet[Any]:
    jobs, batch = Job.objects.using(batches.db), OuterRef("pk")
    return batches.filter(Exists(jobs.live().filter(batch=batch)) | Exists(jobs.then_of(batch)))


VERBS = {
    "cancel": Verb(
        "cancel", _("Cancel"), "cancel_batch", cancel_batch, done=_("Cancelled"),
        action=_("Cancel the selected batches"),
        confirm=_("Cancel the jobs of this batch"),
        is_of_use=_has_live,
        among=_with_live,
        useless=_("none of its jobs is live."),
        is_atomic=False,
        is_dangerous=True,
        warning=lambda batch: _(
            "All live jobs of the batch become final, and so does the one that was to follow "
            "their success. Handlers that are executing are not stopped, but their results and "
            "any answers that still come are not used."
        ),
    )
}  # fmt: skip


class BatchList(RowList):
    """Counts up to a bound: a batch may have any number of jobs."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the batches with their counts, in one query."""
        found = super().get_queryset(request, *args, **kwargs)
        jobs = Job.objects.using(found.db).filter(batch=OuterRef("pk"))
        counts = {f"{part}_count": OverFirst.count(jobs.filter(of)) for part, of in PARTS.items()}
        batches: QuerySet[Any] = found.annotate(**counts)
        return batches


@admin.register(Batch)
class BatchAdmin(RowActions, ReadOnlyAdmin):
    """Jobs that belong together."""

    change_form_template = "hipq_django/admin/batch.html"

    list_display = ("shown_name", "progress", "live", "succeeded", "unsuccessful", "started")
    fields = ("shown_name", "instance", "live", "succeeded", "unsuccessful", "started")
    list_class = BatchList
    actions = tuple(VERBS)
    verbs = VERBS

    @admin.display(description=_("batch"))
    def shown_name(self, batch: Batch) -> str:
        """Its name, or its number."""
        return title(batch) if batch.name == NONE else batch.name

    def _counts(self, batch: Any) -> dict[str, int]:
        """Return how many of its jobs stand where: of all of them, but on the list."""
        if not hasattr(batch, "live_count"):
            jobs = Job.objects.using(self.database).filter(batch=batch)
            parts = {f"{part}_count": Count("pk", filter=of) for part, of in PARTS.items()}
            vars(batch).update(jobs.aggregate(**parts), is_counted=True)
        return {part: getattr(batch, f"{part}_count") for part in PARTS}

    def _number(self, batch: Any, number: int) -> str:
        is_counted = getattr(batch, "is_counted", False)
        return format_number(number) if is_counted else format_count(number, format_number)

    @admin.display(description=_("progress"))
    def progress(self, batch: Batch) -> str:
        """How many of its jobs have ended; with a bar unless there are more than were counted."""
        parts = self._counts(batch)
        total, ended = sum(parts.values()), parts["succeeded"] + parts["unsuccessful"]
        shown = f"{self._number(batch, ended)} / {self._number(batch, total)}"
        if shown.endswith("+"):
            return shown
        bar = '<progress value="{}" max="{}">{}/{}</progress> {}'
        return format_html(bar, ended, max(total, 1), ended, total, shown)

    live = column(_("live"), lambda self, batch: self._part(batch, "live"))
    succeeded = column(_("succeeded"), lambda self, batch: self._part(batch, "succeeded"))
    unsuccessful = column(
        _("without success"),
        lambda self, batch: self._part(batch, "unsuccessful"),
    )
    started = column(_("created"), lambda self, batch: when(batch.create_time, self.now))

    def _part(self, batch: Batch, part: str) -> str:
        return self._number(batch, self._counts(batch)[part])

    # What an operator does

    def said(self, verb: Verb, before: Any, result: int) -> str:
        """Return how many jobs were cancelled."""
        text = ngettext("Cancelled %(count)s job", "Cancelled %(count)s jobs", result)
        return text % {"count": format_number(result)}

    # The page

    def beside_form(self, request: HttpRequest, row: Batch) -> dict[str, Any]:
        """Return its progress, and for those who may view jobs its first ones."""
        shown = {**super().beside_form(request, row), "standing": [self.progress(row)]}
        if not self.may_view(request, Job):
            return shown
        found = Job.objects.using(self.database).filter(batch=row).defer(*LARGE)
        jobs = found.select_related("job_type", "worker").order_by("pk")[:MOST_MEMBERS]
        return {
            **shown,
            "members": [self._member(job) for job in jobs],
            "members_url": self.list_url(Job, {"batch": row.pk}),
            "members_count": format_number(sum(self._counts(row).values())),
        }

    def _member(self, job: Job) -> dict[str, Any]:
        return {
            "link": self.job_link(job.pk),
            "standing": badge(*standing(job)),
            "job_type": job.job_type,
            "key": or_dash(job.job_key),
            "updated": when(job.update_time, self.now),
        }
