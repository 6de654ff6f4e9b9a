"""The page on which the spec of a graph that runs is edited, and applied as a whole."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from hipq_django.database.transactions import write_transaction
from hipq_django.flow.admin.forms import fingerprint
from hipq_django.flow.admin.node_actions import NodeActions
from hipq_django.flow.admin.specs import edit_spec, spec_form
from hipq_django.flow.contexts import Room, set_group
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.applying import apply
from hipq_django.flow.graphs.locking import lock_tree
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.flow.settings import flow_settings


class GraphPages(NodeActions):
    """Adds the page of graphs to the pages of nodes."""

    def get_urls(self) -> list[Any]:
        """Return the pages with the one for graphs."""
        return [self.address("graph", GraphPages._graph_view), *super().get_urls()]

    def _graph_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        self.require(request, "edit_graph")
        node = self.get_object(request, object_id)
        if node is None or node.job_type.name != GRAPH:
            return self.gone(request, object_id)
        stored = node.graph
        form = spec_form(request, node, stored, fingerprint(stored))
        edited = edit_spec(request, form, stored, partial(self._apply, request, node), node=node)
        if edited.saved:
            text = _("The graph is now as the spec says.")
            self.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(self.url(Node, "change", node.pk))
        context = {
            "title": _("Edit the graph of %(node)s") % {"node": self.label(node)},
            "original": node,
            "may_edit": True,
            "save_label": _("Apply"),
            "hint": _("Press “Preview” to see what “Apply” would change."),
        }
        return self.shown_page(request, "hipq_flow/admin/spec.html", {**context, **edited.said})

    def _apply(self, request: HttpRequest, node: Node, sent: dict[str, Any]) -> Node:
        """Let the graph be as the spec says, unless somebody else changed it meanwhile."""
        room = Room(flow_settings(node.instance).max_written_bytes)
        with (
            transaction.atomic(using=self.database),
            write_transaction(self.database),
            set_group(room=room),
        ):
            lock_tree(node)
            if fingerprint(node.graph) != sent["seen"]:
                raise FlowError(_("Somebody else changed the graph since you opened the page."))
            apply(node, sent["spec"], only_public=True)
            self.log_change(request, node, "Applied a new spec.")
        return node
