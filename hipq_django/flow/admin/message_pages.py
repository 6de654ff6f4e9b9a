"""The page of a message: editing and dropping it, while nothing reads it and as it was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.text import Truncator
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.admin.display import block, when
from hipq_django.admin.row_actions import Verb, VerbForm, by_name
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import JsonValueField, fingerprint, refuse
from hipq_django.flow.admin.parts import PartPages, port_name, preview_of, text_of
from hipq_django.flow.declared_ports import PortOptions, checked_message
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.status import RUNNING
from hipq_django.models import Job
from hipq_django.models.base import title
from hipq_django.models.masking import shown

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

MAX_QUOTED_CHARS = 300
"""How much of a message is quoted that somebody else wrote."""

GONE = gettext_lazy("The message is gone: it was read, moved or dropped meanwhile.")


def reader_of(port: NodePort) -> int | None:
    """Return the id of the node whose runs read a port: of an out-port that is the parent."""
    return port.node_id if port.direction == "in" else port.node.parent_id


def node_that_reads(message: Message) -> Node | None:
    """Return the node whose runs read a message, if there is one."""
    return Node.objects.using(message.using).filter(pk=reader_of(message.port) or 0).first()


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


def edit_message(message: Message, seen: str, value: Any) -> None:
    """Store other data of a message.

    Raise `FlowError`, with nothing changed, where a run may read it, or it is not as it was seen.
    """
    port = message.port
    most = flow_settings(port.node.instance).max_message_bytes
    data = checked_message(value, PortOptions(port.name, port.type), most)
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
        raise FlowError(str(GONE))
    if fingerprint(row.data) != seen:
        raise FlowError(_("Somebody else changed the message since you opened the page."))
    return row


class DropForm(VerbForm):
    """The message that the page showed: one that was changed meanwhile is left as it is."""

    is_filled_in = True
    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def offer(self, rows: Sequence[Message]) -> None:
        """Note what the message says now."""
        self.row = rows[0]
        self.initial["seen"] = fingerprint(self.row.data)

    def refuse(self, error: HipqError) -> None:
        """Say why it was not done; where the message says something else by now, say that, too."""
        text = _("It is %(now)s now. To replace that by what stands here, send the form again.")
        now = Truncator(text_of(self.row.port, self.row.data)).chars(MAX_QUOTED_CHARS)
        refuse(self, self.field, error, fingerprint(self.row.data), text % {"now": now})


class MessageForm(DropForm):
    """What a message says."""

    field = "value"
    value = JsonValueField(label=gettext_lazy("Message"), rows=12)

    def offer(self, rows: Sequence[Message]) -> None:
        """Show what the message says now."""
        super().offer(rows)
        self.initial["value"] = text_of(self.row.port, self.row.data)


def _warning(text: _StrOrPromise) -> Callable[[Message], str]:
    """Return a function that warns with this text, and says why it cannot be done now."""

    def warning(message: Message) -> str:
        said = text % {"port": port_name(message.port)}
        return f"{said} {obstacle(node_that_reads(message))}".strip()

    return warning


VERBS = by_name(
    Verb(
        "edit", gettext_lazy("Edit the message"), "change_message", edit_message,
        done=gettext_lazy("Edited"),
        warning=_warning(gettext_lazy(
            "It keeps its place among the messages of the port, and is read with what you save "
            "here."
        )),
        confirm=gettext_lazy("Save the message"),
        form=MessageForm,
    ),
    Verb(
        "drop", gettext_lazy("Drop the message"), "delete_message", drop_message,
        done=gettext_lazy("Dropped"),
        warning=_warning(gettext_lazy(
            "The message is deleted from %(port)s, and nobody reads it. This cannot be undone."
        )),
        form=DropForm,
        is_dangerous=True,
    ),
)  # fmt: skip


class MessagePages(PartPages):
    """The pages of messages; what is read already has none."""

    main = "message"
    verbs = VERBS

    def port_of(self, row: Message) -> NodePort:
        """Return the port on which it lies."""
        return row.port

    def rows(self) -> QuerySet[Message]:
        """Return the unread messages."""
        rows = Message.objects.using(self.database).filter(as_default=False)
        return rows.select_related("port__node")

    def why_gone(self) -> str:
        """Return the message about a row that is gone."""
        return str(GONE)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may see nodes and messages."""
        may_see = request.user.has_perm("hipq_flow.view_message")
        return may_see and super().has_view_permission(request)

    def label(self, row: Message) -> str:
        """Return what a message is called, with its port."""
        return _("Message %(id)s on %(port)s") % {"id": row.pk, "port": port_name(row.port)}

    def url_after(self, row: Message, result: Any) -> str:
        """Return the address of the port."""
        return self.url(Node, "port", row.port.node_id, row.port_id)

    def confirm_rows(self, rows: Sequence[Message], verb: Verb) -> list[Any]:
        """Return the beginning of what is dropped."""
        return [preview_of(row.port, row.data) for row in rows if verb.name == "drop"]

    def show(self, request: HttpRequest, row: Message) -> HttpResponse:
        """Return the page of a message."""
        reader = node_that_reads(row)
        why_not, buttons = obstacle(reader), self.buttons(request, row)
        context = {
            "title": self.label(row),
            "original": row,
            "facts": [
                (_("written"), when(row.create_time, self.now)),
                (_("from"), self.nodes.origin(row.context)),
                (_("context"), block(shown(row.port.node, row.context))),
            ],
            "shown": text_of(row.port, row.data),
            "obstacle": why_not if buttons else "",
            "reader_link": "" if reader is None else self.link(Node, reader.pk, title(reader)),
            "buttons": [] if why_not else buttons,
        }
        return self.shown_page(request, "hipq_flow/admin/message.html", context)
