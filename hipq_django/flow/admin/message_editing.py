"""Editing and dropping a message: only while nothing reads it, and only as it was seen."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.flow.admin.forms import fingerprint
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.status import RUNNING
from hipq_django.models import Job
from hipq_django.models.base import title


def reader_of(port: NodePort) -> int | None:
    """Return the id of the node whose runs read a port: of an out-port that is the parent."""
    return port.node_id if port.direction == "in" else port.node.parent_id


def obstacle(reader: Node | None) -> str:
    """Return why messages cannot be edited now, '' where they can.

    What a run had read that waits for its answer, or for its next try with it, counts as read.
    Any other run that is claimed once the node is paused reads nothing, and is no obstacle.
    """
    if reader is None:
        return ""
    jobs = Job.objects.using(reader.using).filter(pk=reader.job_id or 0, state__in=RUNNING)
    if reader.pending or jobs.exists():
        text = _("A run of %(node)s is under way and may have read the message: wait for its end.")
    elif not reader.paused:
        text = _("%(node)s reads this port: pause it first, so that no run reads the message.")
    else:
        return ""
    return text % {"node": title(reader)}


def edit_message(message: Message, seen: str, data: Any) -> None:
    """Store other data of a message.

    Raise `FlowError`, with nothing changed, where a run may read it, or it is not as it was seen.
    """
    with write_transaction(message.using):
        row = _locked(message, seen)
        Message.objects.using(row.using).filter(pk=row.pk).update(data=data)


def drop_message(message: Message, seen: str) -> None:
    """Delete a message; raise `FlowError` as `edit_message` does."""
    with write_transaction(message.using):
        _locked(message, seen).delete(using=message.using)


def _locked(message: Message, seen: str) -> Message:
    """Return a message under its lock, after that of the node that reads it."""
    using = message.using
    pk = reader_of(message.port)
    rows = Node.objects.using(using).filter(pk=pk or 0)
    reason = obstacle(locked(rows).first())
    if reason:
        raise FlowError(reason)
    found = Message.objects.using(using).filter(pk=message.pk, port=message.port_id)
    row: Message | None = locked(found, to_delete=True).first()
    if row is None:
        raise FlowError(_("The message is gone: it was read, moved or dropped meanwhile."))
    if fingerprint(row.data) != seen:
        raise FlowError(_("Somebody else changed the message since you opened the page."))
    return row
