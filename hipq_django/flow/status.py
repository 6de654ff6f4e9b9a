"""What a node is doing: derived from its row, its job and its wakes; stored nowhere."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet, Subquery

from hipq_django.database.lookups import ids_in
from hipq_django.domain.states import Outcome, State as JobState
from hipq_django.flow.family import tree_of
from hipq_django.flow.models import Message, Node, Wake
from hipq_django.flow.models.node import deleted
from hipq_django.flow.values import RUNS_BY_ITSELF, Rest
from hipq_django.models import Job

RUNNING = ("running", "error")


def with_status(nodes: QuerySet[Node]) -> QuerySet[Any]:
    """Return nodes with what their status is derived from."""
    jobs = Job.objects.using(nodes.db).filter(pk=OuterRef("job_id"))
    wakes = Wake.objects.using(nodes.db).filter(node=OuterRef("pk"))
    unread = Message.objects.using(nodes.db).filter(
        port__node=OuterRef("pk"), port__direction="in", as_default=False
    )
    found: QuerySet[Any] = nodes.annotate(
        job_state=Subquery(jobs.values("state")[:1]),
        job_outcome=Subquery(jobs.values("outcome")[:1]),
        has_wake=Exists(wakes),
        has_unread=Exists(unread),
    )
    return found


def derived(node: Any) -> str:
    """Return the status of a node of `with_status`."""
    if node.rest in (Rest.TERMINATING, Rest.TERMINATED):
        return str(node.rest)
    if node.job_state in RUNNING:
        return "running"
    if node.job_state is not None and node.job_state != JobState.FINAL:
        return "queued"
    if node.rest == Rest.FAILED or node.job_outcome not in (None, Outcome.NONE, Outcome.SUCCEEDED):
        return Rest.FAILED
    waits = node.has_wake or (node.paused and (node.has_unread or node.alarm is not None))
    return "queued" if waits else str(node.rest)


def status_of(node: Node) -> str:
    """Return the status of a node as it is now."""
    row = with_status(Node.objects.using(node.using).row_of(node)).first()
    if row is None:
        raise deleted(node)
    return derived(row)


def info_of(node: Node) -> dict[str, Any]:
    """Return what a node is."""
    rows = Node.objects.using(node.using).select_related("job_type", "queue")
    row = rows.row_of(node).first()
    if row is None:
        raise deleted(node)
    return {
        "queue": row.queue.name,
        "component": row.job_type.name,
        "args": row.args,
        "create_time": row.create_time,
        "created_by": row.created_by,
        "ran_at": row.ran_time,
    }


def is_idle(node: Node) -> bool:
    """Return whether nothing is queued, running or unread in the tree of a node."""
    rows = with_status(Node.objects.using(node.using).filter(ids_in("pk", tree_of(node))))
    busy = ("queued", "running", Rest.TERMINATING)
    return not any(
        derived(row) in busy or (row.rest in RUNS_BY_ITSELF and row.has_unread) for row in rows
    )
