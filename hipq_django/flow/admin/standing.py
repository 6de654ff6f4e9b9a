"""Where a node stands, why it does not run, and what to press."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.admin.display import age, badge, format_number, read_head, span
from hipq_django.admin.job_panel import HINTS as JOB_HINTS
from hipq_django.domain.states import State
from hipq_django.flow.admin.filters import STATUS_NAMES
from hipq_django.flow.admin.masking import first_line
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.status import derived
from hipq_django.flow.values import WIDGET, Rest
from hipq_django.models import Job
from hipq_django.monitoring.counts import format_count

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

TONES = {
    "failed": "failed",
    "running": "running",
    "queued": "queued",
    "suspended": "awaiting",
    "completed": "succeeded",
    "terminating": "retry",
    "terminated": "cancelled",
}

HINTS: dict[str, _StrOrPromise] = {
    **JOB_HINTS,
    "failed": gettext_lazy(
        "Correct what is wrong, then press “Run by force”; or mend the message: pause the node, "
        "and open its port."
    ),
    "children_failed": gettext_lazy("Open them below: the graph follows when they go on."),
    "node_paused": gettext_lazy("“Resume” lets it go on."),
    "children_wait": gettext_lazy("Open them below: each says what it waits for."),
    "for_a_person": gettext_lazy(
        "Open its in-port to see them; open an out-port to write the answer."
    ),
    "incomplete": gettext_lazy(
        "Open the port on which something is missing, and the node that writes to it."
    ),
    "staged_jobs": gettext_lazy("The list of jobs shows where they stand."),
    "not_dispatched": gettext_lazy("Is a worker alive? The list of workers shows it."),
    "run_ended": gettext_lazy("Is a worker alive? The list of workers shows it."),
    "terminated": gettext_lazy("“Run by force” brings it back; “Terminate …” can delete it."),
}
"""What to press, by the code of the reason."""


def badges(node: Any, now: datetime) -> str:
    """Return the status of a node of `shown_rows`, and whether it is paused or locked."""
    status = derived(node)
    found = [badge(str(STATUS_NAMES[status]), TONES[status])]
    if node.paused:
        found.append(badge(_("paused"), "retry"))
    if node.lock_until is not None and node.lock_until > now:
        found.append(badge(_("locked"), "retry"))
    return format_html("{} " * len(found), *found)


def note(node: Any, now: datetime) -> str:
    """Return what an operator asks first of a node of `shown_rows`."""
    status = derived(node)
    if node.doomed:
        return _("is deleted once its tree is terminated")
    if status == "failed":
        is_graph = node.job_type.name == GRAPH
        return _("a child has failed") if is_graph else _short_error(node)
    if node.paused and node.unread:
        return _("messages wait until it is resumed")
    return _run_note(node, status, now) or _rest_note(node, status)


def _run_note(node: Any, status: str, now: datetime) -> str:
    """Return what there is to say of the run that is under way, or due."""
    if status == "running":
        waits = node.job_state == State.RUNNING and node.job_worker is None
        return _("waits for its answer") if waits and not node.job_has_answer else ""
    if status == "queued" and node.job_time is not None:
        if node.job_time > now:
            return _("due %(age)s") % {"age": age(node.job_time, now)}
        return _("due for %(span)s") % {"span": span(now - node.job_time)}
    return _("something came, no worker has looked yet") if node.has_wake else ""


def _rest_note(node: Any, status: str) -> str:
    """Return what there is to say of a node of which no run is due."""
    if node.job_type.name == WIDGET:
        return _("a person has to look at its messages") if node.unread else ""
    if status != Rest.SUSPENDED:
        return ""
    return _("waits for more messages") if node.unread else _("waits")


def unread(node: Any, now: datetime) -> str:
    """Return how many messages lie unread on a node of `name_rows`, and for how long."""
    if not node.unread:
        return "0"
    count = format_count(node.unread, format_number)
    if node.oldest is None:
        return count
    length = span(max(now - node.oldest, timedelta()), parts=1)
    for_long = _("for %(span)s") % {"span": length}
    return format_html('{} <span class="hipq-age">{}</span>', count, for_long)


def _short_error(node: Any) -> str:
    """Return the head of an error; its class alone where it may quote a sensitive value."""
    text = first_line(read_head(node.error_head))
    return text.partition(":")[0] if node.is_sensitive else text


def run_of(node: Any) -> Job | None:
    """Return the job of a node's run, None where it has none or it was pruned."""
    rows = Job.objects.using(node.using).select_related("queue", "job_type", "worker")
    return rows.filter(pk=node.job_id).first() if node.job_id else None
