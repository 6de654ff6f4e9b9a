"""Batches: how far each is, and cancelling one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _, ngettext

from hipq_django.admin.base import ReadOnlyAdmin, column
from hipq_django.admin.display import badge, format_number, or_dash, title, when
from hipq_django.admin.job_panel import standing
from hipq_django.admin.row_actions import RowActions, Verb
from hipq_django.api.batches import cancel_batch
from hipq_django.domain.states import LIVE, NONE, UNSUCCESSFUL
from hipq_django.models import Batch, Job

MOST_MEMBERS = 20
"""How many jobs of a batch its page lists."""

LARGE = ("job_data", "result", "error")


def _has_live(batch: Batch, now: datetime) -> bool:
    """Whether jobs of it are live, or one that is to follow their success."""
    jobs = Job.objects.using(batch.using).live()
    then = jobs.held().filter(needs__needs_batch=batch, needs__on="succeeded")
    return jobs.filter(batch=batch).exists() or then.exists()


VERBS = {
    "cancel": Verb(
        "cancel", _("Cancel"), "cancel_batch", cancel_batch, done=_("Cancelled"),
        confirm=_("Cancel the jobs of this batch"),
        is_of_use=_has_live,
        useless=_("no job of it is live."),
        is_atomic=False,
        warning=lambda batch: _(
            "All live jobs of the batch become final, and so does the one that was to follow "
            "their success. Handlers that are executing are not stopped, but their results and "
            "any answers that still come are not used."
        ),
    )
}  # fmt: skip


@admin.register(Batch)
class BatchAdmin(RowActions, ReadOnlyAdmin):
    """Jobs that belong together."""

    change_form_template = "hipq_django/admin/batch.html"

    list_display = ("shown_name", "progress", "live", "succeeded", "unsuccessful", "started")
    fields = ("shown_name", "instance", "live", "succeeded", "unsuccessful", "started")
    actions = tuple(VERBS)
    verbs = VERBS

    @admin.display(description=_("batch"))
    def shown_name(self, batch: Batch) -> str:
        """Its name, or its number."""
        return title(batch) if batch.name == NONE else batch.name

    def _counts(self, batch: Batch) -> dict[str, int]:
        """Return how many of its jobs stand where; by one query for each batch that is shown."""
        known: dict[str, int] | None = getattr(batch, "counts", None)
        if known is None:
            jobs = Job.objects.using(self.database).filter(batch=batch)
            known = jobs.aggregate(
                live=Count("pk", filter=Q(state__in=LIVE)),
                succeeded=Count("pk", filter=Q(outcome="succeeded")),
                unsuccessful=Count("pk", filter=Q(outcome__in=UNSUCCESSFUL)),
            )
            batch.counts = known  # type: ignore[attr-defined]  # for the other columns
        return known

    @admin.display(description=_("progress"))
    def progress(self, batch: Batch) -> str:
        """A bar of the jobs that have ended."""
        counts = self._counts(batch)
        total, ended = sum(counts.values()), counts["succeeded"] + counts["unsuccessful"]
        return format_html(
            '<progress value="{}" max="{}">{}</progress> {} / {}',
            ended, max(total, 1), f"{ended}/{total}", format_number(ended), format_number(total),
        )  # fmt: skip

    live = column(_("live"), lambda self, batch: self._jobs(batch, "live"))
    succeeded = column(_("succeeded"), lambda self, batch: self._jobs(batch, "succeeded"))
    unsuccessful = column(
        _("without success"),
        lambda self, batch: self._jobs(batch, "unsuccessful"),
    )
    started = column(_("created"), lambda self, batch: when(batch.create_time, self.now))

    def _jobs(self, batch: Batch, part: str) -> str:
        return format_number(self._counts(batch)[part])

    # What an operator does

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may cancel batches."""
        return self.may_do(request, "cancel")

    @admin.action(permissions=["cancel"], description=_("Cancel the selected batches"))
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Cancel their live jobs, and what was to follow their success."""
        return self.perform_each(request, queryset, "cancel")

    def said(self, verb: Verb, before: Any, result: int) -> str:
        """Return how many jobs were cancelled."""
        text = ngettext("Cancelled %(count)s job", "Cancelled %(count)s jobs", result)
        return text % {"count": format_number(result)}

    # The page

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Put its first jobs below it, for those who may view jobs."""
        batch = context["original"]
        context["standing"] = [self.progress(batch)]
        if self.may_view(request, Job):
            found = Job.objects.using(self.database).filter(batch=batch).defer(*LARGE)
            jobs = found.select_related("job_type", "worker").order_by("pk")[:MOST_MEMBERS]
            context["members"] = [self._member(job) for job in jobs]
            context["members_url"] = f"{self.url(Job, 'changelist')}?batch={batch.pk}"
            context["members_count"] = format_number(sum(self._counts(batch).values()))
        return super().render_change_form(request, context, *args, **kwargs)

    def _member(self, job: Job) -> dict[str, Any]:
        return {
            "link": self.link(Job, job.pk, _("job %(id)s") % {"id": job.pk}),
            "standing": badge(*standing(job)),
            "job_type": job.job_type,
            "key": or_dash(job.job_key),
            "updated": when(job.update_time, self.now),
        }
