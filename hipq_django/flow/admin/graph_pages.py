"""The page on which the spec of a graph is edited: its problems, its picture, preview, apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.database.transactions import write_transaction
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import SpecForm, fingerprint, refuse
from hipq_django.flow.admin.masking import whole
from hipq_django.flow.admin.node_actions import NodeActions
from hipq_django.flow.admin.pictures import of_spec
from hipq_django.flow.contexts import Room, set_group
from hipq_django.flow.exceptions import FlowError, GraphError
from hipq_django.flow.graphs.applying import apply
from hipq_django.flow.graphs.checking import check
from hipq_django.flow.graphs.locking import lock_tree
from hipq_django.flow.graphs.problem import WARNING, Problem, errors_of
from hipq_django.flow.graphs.publicity import permissions_of
from hipq_django.flow.library.graph import GRAPH, SPEC
from hipq_django.flow.lifecycle import locked_node
from hipq_django.flow.models import Node
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import NOTHING
from hipq_django.models.shown import shown

REPLACES = gettext_lazy(
    "Open the page in another window to see the graph as it is now. To replace that by what stands "
    "here, send the form again."
)


def spec_of(node: Node) -> Any:
    """Return the spec of a graph, as it was given."""
    return node.state_values.get(SPEC)


def not_allowed(request: HttpRequest, spec: Any, stored: Any) -> list[Problem]:
    """Return what of a spec the user may not say."""
    return [
        Problem(path, f"you need the permission hipq_flow.{permission} for this.")
        for path, permission in permissions_of(spec, stored).items()
        if not request.user.has_perm(f"hipq_flow.{permission}")
    ]


def told(problems: Sequence[Problem]) -> dict[str, Any]:
    """Return problems of a spec as a page tells them, beside the spec that was sent."""
    warnings = [problem for problem in problems if problem.level == WARNING]
    return {"problems": errors_of(problems), "warnings": warnings}


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
        stored = spec_of(node)
        first = {"spec": whole(shown(node, stored)), "seen": fingerprint(stored)}
        form = SpecForm(request.POST if request.method == "POST" else None, initial=first)
        spec = stored
        problems: list[Problem] = []
        if form.is_bound:
            spec, problems = self._read(form, node)
            problems += not_allowed(request, spec, stored)
            if spec is not NOTHING and not errors_of(problems) and "_apply" in request.POST:
                if self._apply(request, node, form):
                    return HttpResponseRedirect(self.url(Node, "change", node.pk))
                problems = form.problems  # type: ignore[attr-defined]  # set below
        return self._graph_page(request, node, form, spec, problems)

    def _read(self, form: SpecForm, node: Node) -> tuple[Any, list[Problem]]:
        """Return the spec that was sent, and all that is wrong with it; `NOTHING` if it is none."""
        if not form.is_valid():
            return NOTHING, []
        spec = form.cleaned_data["spec"]
        return spec, check(spec, only_public=True, node=node)

    def _apply(self, request: HttpRequest, node: Node, form: SpecForm) -> bool:
        """Let the graph be as the spec says, unless somebody else changed it meanwhile."""
        form.problems = []  # type: ignore[attr-defined]  # for the page
        try:
            bound = set_group(room=Room(flow_settings(node.instance).max_written_bytes))
            with transaction.atomic(using=self.database), write_transaction(self.database), bound:
                lock_tree(node, form.cleaned_data["spec"])
                if fingerprint(spec_of(locked_node(node))) != form.cleaned_data["seen"]:
                    text = _("Somebody else changed the graph since you opened the page.")
                    raise FlowError(text)
                apply(node, form.cleaned_data["spec"], only_public=True)
                self.log_change(request, node, "Applied a new spec.")
        except GraphError as error:
            form.problems = error.problems  # type: ignore[attr-defined]  # for the page
            return False
        except HipqError as error:
            refuse(form, "spec", error, fingerprint(spec_of(node)), str(REPLACES))
            return False
        self.message_user(request, _("The graph is now as the spec says."), messages.SUCCESS)
        return True

    def _graph_page(
        self, request: HttpRequest, node: Node, form: SpecForm, spec: Any, problems: list[Problem]
    ) -> HttpResponse:
        context = {
            "title": _("Edit the graph of %(node)s") % {"node": self.label(node)},
            "original": node,
            "form": form,
            **told(problems),
            "is_checked": form.is_bound and spec is not NOTHING,
            "picture": None if spec is NOTHING else of_spec(spec, node.instance, node),
        }
        return self.shown_page(request, "hipq_flow/admin/graph.html", context)
