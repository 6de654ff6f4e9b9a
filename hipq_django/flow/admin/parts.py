"""The base of the pages of ports and of messages, which belong to a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.translation import gettext as _

from hipq_django.admin.display import NOTHING
from hipq_django.admin.row_actions import RowActions, Verb, VerbForm
from hipq_django.domain.validation import id_from
from hipq_django.flow.admin.masking import preview, whole
from hipq_django.flow.admin.node_actions import NodeActions
from hipq_django.flow.contexts import Room, set_group
from hipq_django.flow.models import Node, NodePort
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import NOTHING as NO_VALUE
from hipq_django.models.masking import shown


def text_of(port: NodePort, value: Any) -> str:
    """Return a value on a port, masked, as text to read or to edit; '' for none."""
    if value is NO_VALUE:
        return ""
    return whole(shown(port, value))


def preview_of(port: NodePort, value: Any) -> str:
    """Return the beginning of a value on a port, masked."""
    if value is NO_VALUE:
        return NOTHING
    return preview(shown(port, value), len(whole(value)))


class PartPages(RowActions):
    """Pages of what belongs to a node: below the addresses of nodes, and in a node's history."""

    asks_on_page = False
    main: ClassVar[str]
    """The name of the page of one of them, as its address has it."""

    def __init__(self, model: type[Model], nodes: NodeActions) -> None:
        super().__init__(model, nodes.admin_site)
        self.using, self.nodes = nodes.using, nodes

    def port_of(self, row: Any) -> NodePort:
        """Return the port that it is, or lies on."""
        raise NotImplementedError

    def rows(self) -> QuerySet[Any]:
        """Return the rows that have a page, with their ports and nodes."""
        raise NotImplementedError

    def show(self, request: HttpRequest, row: Any) -> HttpResponse:
        """Return the page of one."""
        raise NotImplementedError

    def why_gone(self) -> str:
        """Return the message about a row that is gone."""
        raise NotImplementedError

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may see nodes."""
        return self.nodes.has_view_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: each change has a permission of its own."""
        return False

    def read_by(self, request: HttpRequest) -> Self:
        """Return these pages, and those of nodes, with links to what the user may see."""
        pages = super().read_by(request)
        pages.nodes = self.nodes.read_by(request)
        return pages

    # Addresses

    def get_urls(self) -> list[Any]:
        """Return the addresses of the page and of its buttons; there is no list."""
        return [self.address(self.main, type(self)._main_view), *self.verb_urls()]

    def address(self, name: str, view: Callable[..., HttpResponse]) -> Any:
        """Return the address of a page below that of the node."""

        def shown(request: HttpRequest, node_id: str, object_id: str) -> HttpResponse:
            return view(self.read_by(request), request, f"{node_id}/{object_id}")

        guarded = self.admin_site.admin_view(shown)
        return path(
            f"<path:node_id>/{name}/<str:object_id>/", guarded, name=f"hipq_flow_node_{name}"
        )

    def row_url(self, row: Any, page: str = "change") -> str:
        """Return the address of a page."""
        name = self.main if page == "change" else page
        return self.url(Node, name, self.port_of(row).node_id, row.pk)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row with these ids of the node and of its part."""
        node, _slash, part = object_id.partition("/")
        if id_from(node) is None or id_from(part) is None:
            return None
        found = self.rows().filter(pk=part).first()
        return found if found and self.port_of(found).node_id == int(node) else None

    def gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say that it is not there, and show the node."""
        node_id = object_id.partition("/")[0]
        node = self.nodes.get_object(request, node_id)
        if node is None:
            return self.nodes.gone(request, node_id)
        self.message_user(request, self.why_gone(), messages.WARNING)
        return HttpResponseRedirect(self.nodes.row_url(node))

    # Pages

    def _main_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        return self.gone(request, object_id) if row is None else self.show(request, row)

    def shown_page(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> HttpResponse:
        """Return a page; its breadcrumbs lead to the node, and to the port."""
        port = self.port_of(context["original"])
        node = {"original": port.node, "port": port_name(port), "media": self.nodes.media}
        port_url = self.url(Node, "port", port.node_id, port.pk)
        return self.nodes.shown_page(request, template, {"port_url": port_url, **context, **node})

    # What a verb leads to

    def _perform(self, request: HttpRequest, row: Any, verb: Verb, form: VerbForm) -> Any:
        room = Room(flow_settings(self.port_of(row).node.instance).max_written_bytes)
        with set_group(room=room):
            return super()._perform(request, row, verb, form)

    def done_to(self, row: Any, result: Any) -> str:
        """Return the name of the row, for the message after a button was pressed."""
        return self.label(row)

    def write_down(self, request: HttpRequest, row: Any, result: Any, said: str) -> None:
        """Write down in the history of the node what was done."""
        self.nodes.log_change(request, self.port_of(row).node, f"{said}: {self.label(row)}.")


def port_name(port: NodePort) -> str:
    """Return the name of a port without its node; `str(port)` is the notation of the code."""
    side = _("in-port") if port.direction == "in" else _("out-port")
    return f"{side} {port.name}"
