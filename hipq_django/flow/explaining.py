"""Why a node does not run, in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import OuterRef, QuerySet
from django.utils.formats import number_format
from django.utils.text import get_text_list
from django.utils.translation import gettext as _, ngettext

from hipq_django.database import clock
from hipq_django.database.lookups import literal_in
from hipq_django.domain.reasons import Reason
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Message, Node, NodePort, StagedJob
from hipq_django.flow.models.node import deleted
from hipq_django.flow.status import derived, with_status
from hipq_django.flow.values import STAGE, WIDGET, Rest
from hipq_django.models import Job
from hipq_django.monitoring.counts import OverFirst, capped_count, format_count
from hipq_django.monitoring.reasons import explain as explain_job, when

MAX_NAMED = 5
"""How many children or ports a reason names."""

_counted = partial(number_format, force_grouping=True)


def explain(node: Node) -> list[Reason]:
    """Return why a node is not running, the most decisive reason first.

    Empty for a node whose run the next pass of a worker will start, and for one that is running.
    Raise `NodeDeletedError`.
    """
    row = with_unread(with_status(Node.objects.using(node.using).row_of(node))).first()
    if row is None:
        raise deleted(node)
    jobs = Job.objects.using(node.using).select_related("queue", "job_type", "worker")
    job = jobs.filter(pk=row.job_id).first() if row.job_id else None
    return reasons_of(row, job, clock.now(node.using))


aexplain = sync_to_async(explain)


def with_unread(nodes: QuerySet[Any]) -> QuerySet[Any]:
    """Return nodes with the number of messages on their in-ports; 10,001 if there are more."""
    unread = Message.objects.using(nodes.db).filter(
        port__node=OuterRef("pk"), port__direction="in", as_default=False
    )
    found: QuerySet[Any] = nodes.annotate(unread=OverFirst.count(unread.order_by("pk")))
    return found


def reasons_of(node: Any, job: Job | None, now: datetime) -> list[Reason]:
    """Return the same for a node of `with_status` and `with_unread`, and the job of its run."""
    return list(_reasons(node, job, now))


def _reasons(node: Any, job: Job | None, now: datetime) -> Iterator[Reason]:
    if node.rest == Rest.TERMINATED:
        yield Reason("terminated", _("It is terminated: it takes messages, but does not run."))
        return
    yield from _held(node, now)
    if job is not None and not job.is_final:
        yield from explain_job(job)
    elif node.job_type.name == GRAPH and not node.has_wake:
        yield from _as_children(node)
    elif derived(node) == Rest.FAILED:
        yield from _failed(node, job)
    else:
        yield from _resting(node)


def _held(node: Any, now: datetime) -> Iterator[Reason]:
    if node.paused:
        yield Reason("node_paused", _("It is paused; messages wait until it is resumed."))
    if node.lock_until is not None and node.lock_until > now:
        text = _("Something outside has locked it; the lock ends no later than %(time)s.")
        yield Reason("node_locked", text % {"time": when(node.lock_until, now)})


def _as_children(node: Any) -> Iterator[Reason]:
    """Yield why a graph rests: its rest is worked out from those of its children."""
    children = Node.objects.using(node.using).filter(parent=node.pk)
    names = children.order_by("name").values_list("name", flat=True)
    if failed := list(names.filter(literal_in("rest", [Rest.FAILED]))[:MAX_NAMED]):
        text = _("A graph has the status of its children; these have failed: %(names)s.")
        yield Reason("children_failed", text % {"names": ", ".join(failed)})
    elif node.rest == Rest.SUSPENDED:
        waiting = list(names.filter(rest=Rest.SUSPENDED)[:MAX_NAMED])
        text = _("A graph has the status of its children; these wait: %(names)s.")
        yield Reason("children_wait", text % {"names": ", ".join(waiting)})
    else:
        yield Reason("children_rest", _("All its children rest: it waits for messages."))


def _failed(node: Any, job: Job | None) -> Iterator[Reason]:
    if node.rest != Rest.FAILED and job is not None:
        text = _("Its run has ended (%(outcome)s), and no worker has looked at the node since.")
        yield Reason("run_ended", text % {"outcome": job.get_outcome_display()})
        return
    if node.unread:
        text = ngettext(
            "It failed, and runs by force only. %(count)s unread message is kept.",
            "It failed, and runs by force only. %(count)s unread messages are kept.",
            node.unread,
        )
        yield Reason("failed", text % {"count": format_count(node.unread, _counted)})
    else:
        yield Reason("failed", _("It failed, and runs by force only."))


def _resting(node: Any) -> Iterator[Reason]:
    if node.has_wake and not node.paused:
        yield Reason("not_dispatched", _("Something came for it, and no worker has looked yet."))
    elif node.job_type.name == STAGE and (count := _staged(node)):
        text = ngettext(
            "%(count)s of its jobs is under way: its end comes out here.",
            "%(count)s of its jobs are under way: their ends come out here.",
            count,
        )
        yield Reason("staged_jobs", text % {"count": format_count(count, _counted)})
    elif node.unread and not node.paused:
        yield _left(node)
    elif not node.paused:
        waits = _("It waits for messages: nothing unread lies on its in-ports.")
        yield Reason("no_messages", waits)


def _left(node: Any) -> Reason:
    """Return why a node that has looked at its messages has left some."""
    if node.job_type.name == WIDGET:
        text = ngettext(
            "A person has to look at %(count)s message and to write to the out-ports.",
            "A person has to look at %(count)s messages and to write to the out-ports.",
            node.unread,
        )
        return Reason("for_a_person", text % {"count": format_count(node.unread, _counted)})
    if empty := get_text_list(_empty_ports(node), _("and")):
        text = _("It looked at its messages and waits for more, on %(ports)s.")
        return Reason("incomplete", text % {"ports": empty})
    return Reason("incomplete", _("It looked at its messages and left them."))


def _staged(node: Any) -> int:
    return capped_count(StagedJob.objects.using(node.using).filter(node=node.pk))


def _empty_ports(node: Any) -> list[str]:
    """Return the in-ports that have neither messages nor a default."""
    ports = NodePort.objects.using(node.using).filter(node=node.pk, direction="in")
    filled = Message.objects.using(node.using).filter(port__node=node.pk)
    empty = ports.filter(has_default=False).exclude(name="*").exclude(pk__in=filled.values("port"))
    return list(empty.order_by("pk").values_list("name", flat=True)[:MAX_NAMED])
