"""Filters of the list of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from hipq_django.admin.filters import ChoiceFilter, JobTypeFilter
from hipq_django.database.lookups import literal_in
from hipq_django.domain.states import Outcome, State
from hipq_django.flow.declaring import KIND
from hipq_django.flow.models import Message, Node, Wake
from hipq_django.flow.status import RUNNING
from hipq_django.flow.values import Rest
from hipq_django.models import Job

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


class StatusFilter(ChoiceFilter):
    """What nodes do; paused ones are of any status."""

    title = _("status")
    parameter_name = "status"
    labels = {**STATUS_NAMES, "paused": _("paused")}

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the nodes in the chosen status."""
        return rows.filter(paused=True) if value == "paused" else in_status(rows, value)


class ComponentFilter(JobTypeFilter):
    """Nodes of one component."""

    title = _("component")
    parameter_name = "component"

    def rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the components that have nodes."""
        nodes = Node.objects.using(rows.db).filter(job_type=OuterRef("pk"))
        return rows.filter(Exists(nodes), kind=KIND)


class PlaceFilter(ChoiceFilter):
    """Where nodes stand in their tree."""

    title = _("place")
    parameter_name = "place"
    labels = {
        "roots": _("without a parent"),
        "orphans": _("disowned by their parent"),
        "children": _("below another node"),
    }

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the nodes in the chosen place."""
        found = rows.filter(parent__isnull=value != "children")
        if value == "orphans":  # a node made them, which is their parent no more
            return found.filter(created_by__startswith="node:")
        return found
