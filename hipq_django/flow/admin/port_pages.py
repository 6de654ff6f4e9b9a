"""The page of a port and the page of a message: what lies there, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from hipq_django.admin.display import NOTHING, block, format_number, when
from hipq_django.admin.fields import MAX_QUOTED_CHARS
from hipq_django.admin.previews import with_preview
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.redaction import Redactor
from hipq_django.domain.validation import id_from
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import (
    DefaultForm,
    MessageForm,
    MoveForm,
    SeenForm,
    WriteForm,
    fingerprint,
    refuse,
)
from hipq_django.flow.admin.masking import masked, preview, whole
from hipq_django.flow.admin.message_editing import (
    drop_message,
    edit_message,
    obstacle,
    reader_of,
)
from hipq_django.flow.admin.node_actions import NodeActions
from hipq_django.flow.admin.node_list import name_rows, shown_rows
from hipq_django.flow.admin.standing import badges
from hipq_django.flow.aliases import get
from hipq_django.flow.contexts import Room, set_group
from hipq_django.flow.declared_ports import ANY, PortOptions, checked_message
from hipq_django.flow.exceptions import FlowError, NodeDeletedError, UnknownPortError
from hipq_django.flow.models import Connection, Message, Node, NodePort
from hipq_django.flow.ports import Port, for_change
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.statements import reached
from hipq_django.flow.values import NOTHING as NO_VALUE
from hipq_django.models import Job
from hipq_django.models.base import title
from hipq_django.models.job_type import redactor_of_all
from hipq_django.monitoring.counts import COUNT_LIMIT, capped_count, format_count

MAX_MESSAGES, MAX_LINKS = 50, 20

SIDES = {"in": gettext_lazy("in-port"), "out": gettext_lazy("out-port")}
SHOWN = {"write": WriteForm, "default": DefaultForm, "move": MoveForm}
MAY = {
    "write": ("write_port",),
    "default": ("edit_node",),
    "clear": ("edit_node",),
    "move": ("read_port", "write_port"),
}
"""What is done on a port's page, and the permissions that it needs."""

LABELS = {
    "write": gettext_lazy("Write a message"),
    "default": gettext_lazy("Set the default"),
    "clear": gettext_lazy("Clear the default"),
    "move": gettext_lazy("Move all messages"),
}
FIELDS = {"write": "value", "default": "default", "move": "port"}
"""Beside which field a refusal stands."""

SENT = ("do", "value", "default", "seen", "node", "direction", "port")
"""What a confirmation sends once more."""


class PortPages(NodeActions):
    """Adds the pages of ports and messages to the pages of nodes."""

    def get_urls(self) -> list[Any]:
        """Return the pages with those of ports and messages."""
        return [
            self.address("port", PortPages._port_view, "<str:port_id>/"),
            self.address("message", PortPages._message_view, "<str:message_id>/"),
            self.address("drop", PortPages._drop_view, "<str:message_id>/"),
            *super().get_urls(),
        ]

    # A port

    def _port_view(self, request: HttpRequest, object_id: str, port_id: str) -> HttpResponse:
        self._require_view(request)
        row = self._port(request, object_id, port_id)
        if row is None:
            return self.gone(request, object_id)
        try:
            return self._answer(request, row)
        except NodeDeletedError:
            return self.gone(request, object_id)
        except UnknownPortError as error:  # it has gone since
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(self.url(Node, "change", row.node_id))

    def _answer(self, request: HttpRequest, row: NodePort) -> HttpResponse:
        """Do what was sent, or show the port; raise an error where it is not there any more."""
        what = request.POST.get("do", "") if request.method == "POST" else ""
        forms = self._forms(row)
        if what:
            if not self._may_do(request, what):
                raise PermissionDenied
            if what in SHOWN:
                forms[what] = SHOWN[what](request.POST)
            if answer := self._ask_or_change(request, row, what, forms.get(what, Form({}))):
                return answer
        return self._port_page(request, row, forms)

    def _require_view(self, request: HttpRequest) -> None:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied

    def _may_do(self, request: HttpRequest, what: str) -> bool:
        return what in MAY and all(self.may(request, name) for name in MAY[what])

    def _port(self, request: HttpRequest, object_id: str, port_id: str) -> NodePort | None:
        node = self.get_object(request, object_id)
        pk = id_from(port_id)
        if node is None or pk is None:
            return None
        rows = NodePort.objects.using(self.database).select_related("node")
        return rows.filter(pk=pk, node=node.pk).exclude(name=ANY).first()

    def _forms(self, row: NodePort) -> dict[str, Form]:
        default = Port(row.node, row.direction, row.name).default
        redactor = redactor_of_all(row.node.instance, self.database)
        text = "" if default is NO_VALUE else whole(masked(default, redactor, row.name))
        shown = {"default": text, "seen": fingerprint(default)}
        return {
            "write": WriteForm(),
            "default": DefaultForm(initial=shown),
            "move": MoveForm(initial={"node": row.node_id, "direction": row.direction}),
        }

    def _ask_or_change(
        self, request: HttpRequest, row: NodePort, what: str, form: Form
    ) -> HttpResponse | None:
        """Show what would be done, or do it once that is confirmed; None if it is refused.

        What would be refused is refused before it is asked about: it is done, and taken back.
        """
        if not form.is_valid():
            return None
        values = {**form.cleaned_data, "seen": request.POST.get("seen", "")}
        is_confirmed = bool(request.POST.get("confirmed"))
        try:
            room = Room(flow_settings(row.node.instance).max_written_bytes)
            with transaction.atomic(using=self.database), set_group(room=room):
                logged, told = self._changes[what](row, values)
                self.log_change(request, row.node, logged)
                if not is_confirmed:
                    transaction.set_rollback(True, using=self.database)
            facts = [] if is_confirmed else self._foreseen(row, what, values)
        except HipqError as error:
            self._refuse(request, row, form, what, error)
            return None
        if not is_confirmed:
            return self._ask_port(request, row, what, facts)
        self.message_user(request, told, messages.SUCCESS)
        return HttpResponseRedirect(self.url(Node, "port", row.node_id, row.pk))

    @property
    def _changes(self) -> dict[str, Callable[[NodePort, dict[str, Any]], tuple[str, str]]]:
        """What changes a port, by what the form says to do; it returns what is logged and told."""
        return {
            "write": self._write,
            "default": self._set_default,
            "clear": self._clear_default,
            "move": self._move,
        }

    def _refuse(
        self, request: HttpRequest, row: NodePort, form: Form, what: str, error: HipqError
    ) -> None:
        """Say why something is not done: beside its field, if it has one."""
        field = FIELDS.get(what)
        if field is None:
            self.message_user(request, str(error), messages.ERROR)
        else:
            default = _port_of(row).default
            refuse(form, field, error, fingerprint(default), self._now(row, default))

    def _ask_port(
        self, request: HttpRequest, row: NodePort, what: str, facts: list[tuple[str, str]]
    ) -> HttpResponse:
        context = {
            "title": _("%(verb)s: %(what)s?") % {"verb": LABELS[what], "what": self._title(row)},
            "original": row.node,
            "port": _named(row),
            "port_url": self.url(Node, "port", row.node_id, row.pk),
            "label": LABELS[what],
            "facts": facts,
            "is_dangerous": what == "move",
            "sent": [(name, request.POST[name]) for name in SENT if name in request.POST],
        }
        return self.page(request, "port_confirm", context)

    def _foreseen(self, row: NodePort, what: str, values: dict[str, Any]) -> list[tuple[str, str]]:
        """Return what would be done, as lines of names and values."""
        if what == "write":
            return [
                (_("message"), self._preview(row, values["value"])),
                (_("is put on"), self._destinations(row)),
                (_("is published on"), ", ".join(_published_by(row)) or NOTHING),
            ]
        if what == "move":
            stays = _("stays here, and is copied to ports whose default differs")
            has_default = _port_of(row).default is not NO_VALUE
            return [
                (_("messages"), format_count(capped_count(_unread(row)), format_number)),
                (_("are put on"), self._foreseen_target(row, values)),
                (_("default"), stays if has_default else NOTHING),
            ]
        is_set = what == "default"
        return [
            (_("default now"), self._preview(row, _port_of(row).default)),
            (
                _("default afterwards"),
                self._preview(row, values["default"] if is_set else NO_VALUE),
            ),
            *([(_("is put on"), self._destinations(row))] if is_set else []),
        ]

    def _preview(self, row: NodePort, value: Any) -> str:
        """Return what may be shown of a value for a port."""
        if value is NO_VALUE:
            return NOTHING
        redactor = redactor_of_all(row.node.instance, self.database)
        return preview(masked(value, redactor, row.name), len(whole(value)))

    def _now(self, row: NodePort, value: Any) -> str:
        """Return what is said of a value on a port that is not as the page showed it any more."""
        redactor = redactor_of_all(row.node.instance, self.database)
        shown = NOTHING if value is NO_VALUE else whole(masked(value, redactor, row.name))
        text = _("It is %(now)s now. To replace that by what stands here, send the form again.")
        return text % {"now": Truncator(shown).chars(MAX_QUOTED_CHARS)}

    def _destinations(self, row: NodePort) -> str:
        """Return the ports on which a message for this one comes to lie, and who reads it there."""
        rows = NodePort.objects.using(self.database).filter(
            pk__in=reached([row.pk], self.database), outgoing__isnull=True
        )
        ports = list(rows.select_related("node").order_by("pk")[:MAX_LINKS])
        readers = {pk for port in ports if (pk := reader_of(port)) is not None}
        nodes = shown_rows(Node.objects.using(self.database).filter(pk__in=readers))
        shown = {node.pk: node for node in nodes}
        name_rows(shown.values(), self.database)
        names = self.names_of(port.node for port in ports)
        lines = [
            (self.port_links([("→", port)], names), self._read_by(port, shown)) for port in ports
        ]
        return format_html_join("", "<div>{} {}</div>", lines)

    def _read_by(self, port: NodePort, readers: dict[int, Any]) -> str:
        reader = readers.get(reader_of(port) or 0)
        if reader is None:
            return _("which no node reads")
        read_by = format_html(
            _("which is read by {node}"), node=self.link(Node, reader.pk, reader.label)
        )
        return format_html("{} {}", read_by, badges(reader, self.now))

    def _write(self, row: NodePort, values: dict[str, Any]) -> tuple[str, str]:
        _port_of(row).write(values["value"])
        return f"Wrote a message to {row}.", _("The message was written.")

    def _set_default(self, row: NodePort, values: dict[str, Any]) -> tuple[str, str]:
        port = _port_of(row)
        with write_transaction(self.database):
            self._check_seen(port, row, values)
            port.default = values["default"]
        return f"Set the default of {row}.", _("The default was set.")

    def _clear_default(self, row: NodePort, values: dict[str, Any]) -> tuple[str, str]:
        port = _port_of(row)
        with write_transaction(self.database):
            self._check_seen(port, row, values)
            del port.default
        return f"Cleared the default of {row}.", _("The default was cleared.")

    def _check_seen(self, port: Port, row: NodePort, values: dict[str, Any]) -> None:
        """Lock a port; raise `FlowError` if its default is not the one that the page showed."""
        for_change(row.node, [row.pk])
        if fingerprint(port.default) != values["seen"]:
            raise FlowError(_("Somebody else changed the default since you opened the page."))

    def _move(self, row: NodePort, values: dict[str, Any]) -> tuple[str, str]:
        port = _port_of(row)
        if capped_count(_unread(row)) > COUNT_LIMIT:
            most = _(
                "More than %(count)s messages lie here: move them in code, with port.move_to()."
            )
            raise FlowError(most % {"count": format_number(COUNT_LIMIT)})
        target = self._target(row, values)
        moved = len(port.move_to(target))
        text = ngettext("Moved %(count)s message.", "Moved %(count)s messages.", moved)
        logged = f"Moved {moved} messages of {row} to node {target.node.pk}, {target.row}."
        return logged, text % {"count": format_number(moved)}

    def _target(self, row: NodePort, values: dict[str, Any]) -> Port:
        """Return the port that the form names; raise `FlowError` where it is the same one."""
        target = self._ports_named(row, values)[1][values["port"]]
        if target == _port_of(row):
            raise FlowError(_("This is the port itself."))
        return target

    def _foreseen_target(self, row: NodePort, values: dict[str, Any]) -> str:
        """Return where messages would be moved; only moving them makes a port that `*` is for."""
        (node, ports), name = self._ports_named(row, values), values["port"]
        if name in ports:
            return self._destinations(ports[name].row)
        new = NodePort(node=node, direction=values["direction"], name=name)
        return _("%(port)s, which is new") % {"port": self._title(new)}

    def _ports_named(
        self, row: NodePort, values: dict[str, Any]
    ) -> tuple[Node, Mapping[str, Port]]:
        """Return the node that the form names, and its ports of the side that it names."""
        node = get(values["node"].strip(), instance=row.node.instance)
        return node, node.inputs if values["direction"] == "in" else node.outputs

    def _title(self, row: NodePort) -> str:
        names = {"side": SIDES[row.direction], "port": row.name, "node": self.label(row.node)}
        return _("%(side)s %(port)s of %(node)s") % names

    def _port_page(
        self, request: HttpRequest, row: NodePort, forms: dict[str, Form]
    ) -> HttpResponse:
        redactor = redactor_of_all(row.node.instance, self.database)
        count = capped_count(_unread(row))
        may_see = self.may(request, "view_message")
        found = with_preview(_unread(row).order_by("pk"), "data").defer("data")[:MAX_MESSAGES]
        context = {
            "title": self._title(row),
            "original": row.node,
            "facts": self._facts(row, count),
            "rows": [self._message_row(row, m, redactor, may_see) for m in found],
            "count": format_count(count, format_number),
            "is_cut": count > MAX_MESSAGES,
            "max_rows": MAX_MESSAGES,
            "forms": {name: form for name, form in forms.items() if self._may_do(request, name)},
            "has_default": _port_of(row).default is not NO_VALUE,
            "is_connected": row.outgoing.exists(),
            "is_memory": row.mode == "memory",
            "size": count,
        }
        return self.page(request, "port", context)

    def _facts(self, row: NodePort, count: int) -> list[tuple[str, str]]:
        return [
            (_("unread"), format_count(count, format_number)),
            (_("takes"), row.type or _("any JSON")),
            (_("kind"), _("memory: a message replaces the one before") if row.mode == "memory"
             else _("queue: messages are read in their order")),
            (_("default"), self._preview(row, _port_of(row).default)),
            (_("connected with"), self.links(row) or NOTHING),
            (_("channels"), ", ".join(channels_of(row)) or NOTHING),
        ]  # fmt: skip

    def links(self, row: NodePort) -> str:
        """Return links to the ports that a port is connected with."""
        rows = Connection.objects.using(self.database).order_by("pk")
        outgoing = rows.filter(source=row).select_related("target__node")[:MAX_LINKS]
        incoming = rows.filter(target=row).select_related("source__node")[:MAX_LINKS]
        ports = [("→", c.target) for c in outgoing] + [("←", c.source) for c in incoming]
        return self.port_links(ports, self.names_of(port.node for _arrow, port in ports))

    def port_links(self, ports: list[tuple[str, NodePort]], names: dict[int, str]) -> str:
        """Return links to ports, each with an arrow that says which way messages go."""
        shown = (
            (
                arrow,
                self.url(Node, "port", port.node_id, port.pk),
                f"{names[port.node_id]}.{port.name}",
            )
            for arrow, port in ports
        )
        return format_html_join(" ", '{}&nbsp;<a href="{}">{}</a>', shown)

    def _message_row(
        self, row: NodePort, message: Any, redactor: Redactor, may_see: bool
    ) -> dict[str, Any]:
        url = self.url(Node, "message", row.node_id, message.pk) if may_see else ""
        return {
            "id": message.pk,
            "url": url,
            "written": when(message.create_time, self.now),
            "from": self.origin(message.context),
            "data": preview(masked(message.shown, redactor, row.name), message.size),
        }

    def origin(self, context: Any) -> str:
        """Return where a message came from, as its context says."""
        known = context if isinstance(context, dict) else {}
        parts = []
        if isinstance(known.get("node"), int):
            parts.append(self.link(Node, known["node"], title(Node(pk=known["node"]))))
        if isinstance(known.get("run"), int):
            parts.append(self.link(Job, known["run"], _("job %(id)s") % {"id": known["run"]}))
        if known.get("channel"):
            parts.append(str(known["channel"]))
        return format_html_join(", ", "{}", ((part,) for part in parts)) or NOTHING

    # A message

    def _message(self, request: HttpRequest, object_id: str, message_id: str) -> Message | None:
        node = self.get_object(request, object_id)
        pk = id_from(message_id)
        if node is None or pk is None:
            return None
        rows = Message.objects.using(self.database).select_related("port__node")
        return rows.filter(pk=pk, port__node=node.pk, as_default=False).first()

    def _message_view(self, request: HttpRequest, object_id: str, message_id: str) -> HttpResponse:
        self.require(request, "view_message")
        message = self._message(request, object_id, message_id)
        if message is None:
            return self._message_gone(request, object_id)
        redactor = redactor_of_all(message.port.node.instance, self.database)
        shown = whole(masked(message.data, redactor, message.port.name))
        form = MessageForm(initial={"value": shown, "seen": fingerprint(message.data)})
        if request.method == "POST":
            self.require(request, "change_message")
            form = MessageForm(request.POST)
            if form.is_valid() and self._edit(request, message, form):
                return self._to_port(message)
        return self._message_page(request, message, form, shown)

    def _edit(self, request: HttpRequest, message: Message, form: MessageForm) -> bool:
        port, sent = message.port, form.cleaned_data
        most = flow_settings(port.node.instance).max_message_bytes

        def edit() -> None:
            data = checked_message(sent["value"], PortOptions(port.name, port.type), most)
            edit_message(message, sent["seen"], data)

        logged = f"Edited message {message.pk} on {port}."
        return self._change(request, message, edit, logged, form)

    def _change(
        self,
        request: HttpRequest,
        message: Message,
        do: Callable[[], None],
        logged: str,
        form: MessageForm | None = None,
    ) -> bool:
        """Do something to a message and log it; where it is refused, say why and return False."""
        port = message.port
        try:
            with transaction.atomic(using=self.database):
                do()
                self.log_change(request, port.node, logged)
        except HipqError as error:
            if form is not None:
                refuse(
                    form, "value", error, fingerprint(message.data), self._now(port, message.data)
                )
            else:
                self.message_user(request, str(error), messages.ERROR)
            return False
        done = _("Message %(id)s was changed.") if form is not None else _(
            "Message %(id)s was dropped."
        )  # fmt: skip
        self.message_user(request, done % {"id": message.pk}, messages.SUCCESS)
        return True

    def _message_page(
        self, request: HttpRequest, message: Message, form: MessageForm, shown: str
    ) -> HttpResponse:
        reader, port = self._reader(message), _named(message.port)
        redactor = redactor_of_all(message.port.node.instance, self.database)
        context = {
            "title": _("Message %(id)s on %(port)s") % {"id": message.pk, "port": port},
            "original": message.port.node,
            "port": port,
            "port_url": self.url(Node, "port", message.port.node_id, message.port_id),
            "facts": [
                (_("written"), when(message.create_time, self.now)),
                (_("from"), self.origin(message.context)),
                (_("context"), block(redactor.mask(message.context))),
            ],
            "shown": shown,
            "form": form if self.may(request, "change_message") else None,
            "obstacle": obstacle(reader),
            "reader_link": "" if reader is None else self.link(Node, reader.pk, title(reader)),
            "drop_url": self.url(Node, "drop", message.port.node_id, message.pk)
            if self.may(request, "delete_message")
            else "",
        }
        return self.page(request, "message", context)

    def _reader(self, message: Message) -> Node | None:
        rows = Node.objects.using(self.database).filter(pk=reader_of(message.port) or 0)
        return rows.first()

    def _drop_view(self, request: HttpRequest, object_id: str, message_id: str) -> HttpResponse:
        self.require(request, "view_message")
        self.require(request, "delete_message")
        message = self._message(request, object_id, message_id)
        if message is None:
            return self._message_gone(request, object_id)
        form = SeenForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            seen = form.cleaned_data["seen"]
            logged = f"Dropped message {message.pk} of {message.port}."
            if self._change(request, message, lambda: drop_message(message, seen), logged):
                return self._to_port(message)
        redactor = redactor_of_all(message.port.node.instance, self.database)
        size = len(whole(message.data))
        context = {
            "title": _("Drop message %(id)s?") % {"id": message.pk},
            "original": message.port.node,
            "port": _named(message.port),
            "port_url": self.url(Node, "port", message.port.node_id, message.port_id),
            "shown": preview(masked(message.data, redactor, message.port.name), size),
            "obstacle": obstacle(self._reader(message)),
            "form": SeenForm(initial={"seen": fingerprint(message.data)}),
        }
        return self.page(request, "drop", context)

    def _to_port(self, message: Message) -> HttpResponse:
        return HttpResponseRedirect(self.url(Node, "port", message.port.node_id, message.port_id))

    def _message_gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        node = self.get_object(request, object_id)
        if node is None:
            return self.gone(request, object_id)
        text = _("The message is gone: it was read, moved or dropped meanwhile.")
        self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.url(Node, "change", node.pk))


def _named(row: NodePort) -> str:
    """Return what a port is called, without its node; `str(row)` is the notation of the code."""
    return f"{SIDES[row.direction]} {row.name}"


def _port_of(row: NodePort) -> Port:
    return Port(row.node, row.direction, row.name)


def _unread(row: NodePort) -> Any:
    return Message.objects.using(row.using).filter(port=row.pk, as_default=False)


def _published_by(row: NodePort) -> list[str]:
    """Return the channels on which what is written to a port is published."""
    return channels_of(row) if row.direction == "out" else []


def channels_of(row: NodePort) -> list[str]:
    """Return the channels of a port, as many as are shown."""
    return list(row.channel_rows.order_by("pk").values_list("name", flat=True)[:MAX_LINKS])
