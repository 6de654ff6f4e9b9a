"""Filters of the list of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from hipq_django.admin.filters import JobTypeFilter
from hipq_django.database.lookups import literal_in
from hipq_django.domain.states import Outcome, State
from hipq_django.flow.declaring import KIND
from hipq_django.flow.models import Message, Node, Wake
from hipq_django.flow.status import RUNNING
from hipq_django.flow.values import Rest
from hipq_django.models import Job, JobType

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

STATUS_NAMES: dict[str, _StrOrPromise] = {
    "failed": _("failed"),
    "running": _("running"),
    "queued": _("queued"),
    "suspended": _("suspended"),
    "completed": _("completed"),
    "terminating": _("terminating"),
    "terminated": _("terminated"),
}
ENDING = (Rest.TERMINATING, Rest.TERMINATED)


def has_failed() -> Any:
    """Return the condition of failed nodes as their index has it."""
    return literal_in("rest", [Rest.FAILED])


def in_status(nodes: QuerySet[Any], status: str) -> QuerySet[Any]:
    """Return the nodes that `flow.status.derived` would say this status of."""
    if status in ENDING:
        return nodes.filter(rest=status)
    jobs = Job.objects.using(nodes.db).filter(pk=OuterRef("job_id"))
    has_job = Q(job_id__isnull=False)
    runs = has_job & Q(Exists(jobs.filter(state__in=RUNNING)))
    lives = has_job & Q(Exists(jobs.exclude(state=State.FINAL)))
    ended_badly = has_job & Q(
        Exists(jobs.filter(state=State.FINAL).exclude(outcome=Outcome.SUCCEEDED))
    )
    unread = Message.objects.using(nodes.db).filter(
        port__node=OuterRef("pk"), port__direction="in", as_default=False
    )
    wakes = Wake.objects.using(nodes.db).filter(node=OuterRef("pk"))
    has_work = Q(Exists(unread)) | Q(alarm__isnull=False)
    waits = Q(Exists(wakes)) | (Q(paused=True) & has_work)
    rows = nodes.exclude(rest__in=ENDING)
    if status == "running":
        return rows.filter(runs)
    if status == "queued":
        return rows.filter((lives & ~runs) | (~Q(rest=Rest.FAILED) & ~lives & ~ended_badly & waits))
    if status == Rest.FAILED:
        return rows.filter(Q(has_failed()) | ended_badly).exclude(lives)
    return rows.filter(rest=status).exclude(lives | ended_badly | waits)


class StatusFilter(SimpleListFilter):
    """What nodes do; paused ones are of any status."""

    title = _("status")
    parameter_name = "status"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return [*STATUS_NAMES.items(), ("paused", _("paused"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the nodes in the chosen status."""
        value = self.value()
        if value is None:
            return queryset
        if value == "paused":
            return queryset.filter(paused=True)
        return in_status(queryset, value) if value in STATUS_NAMES else queryset.none()


class ComponentFilter(JobTypeFilter):
    """Nodes of one component."""

    title = _("component")
    parameter_name = "component"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the components that have nodes."""
        rows = JobType.objects.using(model_admin.database).filter(kind=KIND)  # type: ignore[attr-defined]  # a HipqAdmin
        used = rows.filter(Exists(Node.objects.using(rows.db).filter(job_type=OuterRef("pk"))))
        return [(str(row.pk), str(row)) for row in used.order_by("instance", "name")]


class PlaceFilter(SimpleListFilter):
    """Where nodes stand in their tree."""

    title = _("place")
    parameter_name = "place"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return [
            ("roots", _("without a parent")),
            ("orphans", _("disowned by their parent")),
            ("children", _("below another node")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the nodes in the chosen place."""
        value = self.value()
        if value is None:
            return queryset
        if value == "children":
            return queryset.filter(parent__isnull=False)
        roots = queryset.filter(parent__isnull=True)
        if value == "orphans":  # a node made them, which is their parent no more
            return roots.filter(created_by__startswith="node:")
        return roots if value == "roots" else queryset.none()
