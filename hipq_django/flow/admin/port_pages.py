"""The page of a port: what lies there, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from hipq_django.admin.display import NOTHING, format_number, when
from hipq_django.admin.previews import with_preview
from hipq_django.admin.row_actions import Verb, VerbForm, by_name
from hipq_django.flow.admin.forms import JsonValueField
from hipq_django.flow.admin.masking import preview
from hipq_django.flow.admin.parts import PartPages, port_name, preview_of, text_of
from hipq_django.flow.aliases import get
from hipq_django.flow.declared_ports import ANY
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.ports import Port
from hipq_django.flow.values import NOTHING as NO_VALUE
from hipq_django.models.masking import shown
from hipq_django.monitoring.counts import COUNT_LIMIT, capped_count, format_count

MAX_MESSAGES = 50


class WriteForm(VerbForm):
    """A message for a port."""

    is_filled_in = True
    field = "value"
    value = JsonValueField(label=gettext_lazy("Message"))


class DefaultForm(VerbForm):
    """The default of a port."""

    is_filled_in = True
    field = "default"
    default = JsonValueField(label=gettext_lazy("Default"))

    def offer(self, rows: Sequence[NodePort]) -> None:
        """Show the default that is there."""
        self.initial["default"] = text_of(rows[0], port_of(rows[0]).default)


class MoveForm(VerbForm):
    """The port to which all messages of another one are moved."""

    is_filled_in = True
    field = "port"
    node = forms.CharField(label=gettext_lazy("Node (id or alias)"), max_length=200)
    direction = forms.ChoiceField(
        choices=[("in", gettext_lazy("in-port")), ("out", gettext_lazy("out-port"))],
        label=gettext_lazy("Side"),
    )
    port = forms.CharField(label=gettext_lazy("Port"), max_length=200)

    def offer(self, rows: Sequence[NodePort]) -> None:
        """Begin with the same node and side."""
        self.initial = {"node": rows[0].node_id, "direction": rows[0].direction}

    def clean_port(self) -> str:
        """Refuse the port that stands for others."""
        name: str = self.cleaned_data["port"]
        if name == ANY:
            raise ValidationError(_("Name one port: * stands for those that are not there yet."))
        return name


def port_of(row: NodePort) -> Port:
    """Return the port of which this is the row."""
    return Port(row.node, row.direction, row.name)


def _unread(row: NodePort) -> QuerySet[Message]:
    return Message.objects.using(row.using).filter(port=row.pk, as_default=False)


def _set_default(row: NodePort, default: Any) -> None:
    port_of(row).default = default


def _clear_default(row: NodePort) -> None:
    del port_of(row).default


def _move(row: NodePort, node: str, direction: str, port: str) -> tuple[int, NodePort]:
    """Move all messages; return how many they were, and where they are."""
    if capped_count(_unread(row)) > COUNT_LIMIT:
        most = _("More than %(count)s messages lie here: move them in code, with port.move_to().")
        raise FlowError(most % {"count": format_number(COUNT_LIMIT)})
    named = get(node.strip(), instance=row.node.instance)
    target = (named.inputs if direction == "in" else named.outputs)[port]
    if target == port_of(row):
        raise FlowError(_("This is the port itself."))
    return len(port_of(row).move_to(target)), target.row


def _note_of_writing(row: NodePort) -> str:
    """Return what becomes of a message that is written to a port."""
    if row.outgoing.exists():
        return _(
            "It is delivered to the ports that this one is connected to, and does not stay here."
        )
    if row.mode == "memory":
        return _("It becomes the default of this port, in place of the one before.")
    return _("It goes behind the messages that lie here already.")


VERBS = by_name(
    Verb(
        "write", gettext_lazy("Write a message"), "write_port",
        lambda row, value: port_of(row).write(value),
        done=gettext_lazy("Wrote a message"),
        warning=_note_of_writing,
        form=WriteForm,
    ),
    Verb(
        "default", gettext_lazy("Set the default"), "edit_node", _set_default,
        done=gettext_lazy("Set the default"),
        warning=lambda row: gettext_lazy(
            "It is read while no message lies here. A run that is under way has read the one "
            "before."
        ),
        form=DefaultForm,
    ),
    Verb(
        "clear", gettext_lazy("Clear the default"), "edit_node", _clear_default,
        done=gettext_lazy("Cleared the default"),
        is_of_use=lambda row, now: port_of(row).default is not NO_VALUE,
        useless=gettext_lazy("there is nothing to do."),
        warning=lambda row: gettext_lazy("A node that reads this port waits for messages then."),
    ),
    Verb(
        "move", gettext_lazy("Move all messages"), "write_port", _move,
        done=gettext_lazy("Moved all messages"),
        warning=lambda row: gettext_lazy(
            "They are put, in their order, behind those that lie there; none of them stays here. "
            "A default stays, and is copied to ports whose default differs."
        ),
        form=MoveForm,
        is_dangerous=True,
    ),
)  # fmt: skip


class PortPages(PartPages):
    """The pages of ports."""

    main = "port"
    verbs = VERBS

    def port_of(self, row: NodePort) -> NodePort:
        """Return it."""
        return row

    def rows(self) -> QuerySet[NodePort]:
        """Return the ports, without those that stand for others."""
        rows = NodePort.objects.using(self.database).exclude(name=ANY)
        return rows.select_related("node")

    def why_gone(self) -> str:
        """Return the message about a row that is gone."""
        return _("The port is gone.")

    def may_do(self, request: HttpRequest, name: str) -> bool:
        """Return whether the user may do what a verb does; to move messages is to read them."""
        is_read = name == "move"
        return super().may_do(request, name) and (not is_read or self.may(request, "read_port"))

    def label(self, row: NodePort) -> str:
        """Return what a port is called, with its node."""
        names = {"port": port_name(row), "node": self.nodes.label(row.node)}
        return _("%(port)s of %(node)s") % names

    def said(self, verb: Verb, before: NodePort, result: Any) -> str:
        """Return what was done; how many messages were moved, and where to."""
        if verb.name != "move":
            return super().said(verb, before, result)
        number, target = result
        text = ngettext(
            "Moved %(count)s message to %(port)s", "Moved %(count)s messages to %(port)s", number
        )
        return text % {"count": format_number(number), "port": self.label(target)}

    def confirm_rows(self, rows: Sequence[NodePort], verb: Verb) -> list[Any]:
        """Return nothing: the title names the port."""
        return []

    # The page

    def show(self, request: HttpRequest, row: NodePort) -> HttpResponse:
        """Return the page of a port: its messages, and a button for each change."""
        count = capped_count(_unread(row))
        may_see = self.may(request, "view_message")
        found = with_preview(_unread(row).order_by("pk"), "data").defer("data")[:MAX_MESSAGES]
        context = {
            "title": self.label(row),
            "original": row,
            "port_url": "",  # of this page
            "facts": self._facts(row, count),
            "rows": [self._message_row(row, m, may_see) for m in found],
            "count": format_count(count, format_number),
            "is_cut": count > MAX_MESSAGES,
            "max_rows": MAX_MESSAGES,
            "buttons": self.buttons(request, row),
        }
        return self.shown_page(request, "hipq_flow/admin/port.html", context)

    def _facts(self, row: NodePort, count: int) -> list[tuple[str, str]]:
        return [
            (_("unread"), format_count(count, format_number)),
            (_("takes"), row.type or _("any JSON")),
            (_("kind"), _("memory: a message replaces the one before") if row.mode == "memory"
             else _("queue: messages are read in their order")),
            (_("default"), preview_of(row, port_of(row).default)),
            (_("connected with"), self.nodes.links_of([row]).get(row.pk, NOTHING)),
            (_("channels"), self.nodes.channels_of([row]).get(row.pk, NOTHING)),
        ]  # fmt: skip

    def _message_row(self, row: NodePort, message: Any, may_see: bool) -> dict[str, Any]:
        url = self.url(Node, "message", row.node_id, message.pk) if may_see else ""
        return {
            "id": message.pk,
            "url": url,
            "written": when(message.create_time, self.now),
            "from": self.nodes.origin(message.context),
            "data": preview(shown(row, message.shown), message.size),
        }
