"""Graphs that are kept under a name: written as JSON, looked at, and started."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.admin.base import HipqAdmin, column
from hipq_django.admin.row_actions import RowActions, Verb, VerbForm, by_name
from hipq_django.conf.instances import get_instances
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.validation import id_from
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import StartForm
from hipq_django.flow.admin.pictures import of_spec
from hipq_django.flow.admin.specs import NewGraphForm, SpecForm, edit_spec, spec_form
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.named import is_declared
from hipq_django.flow.graphs.storing import change_graph, create_graph, start_graph
from hipq_django.flow.models import Graph, Node
from hipq_django.flow.values import NOTHING
from hipq_django.models.masking import shown


def _start(row: Graph, **how: Any) -> Node:
    try:
        return start_graph(row, **how)
    except HipqError as error:  # it may quote a value of the spec
        raise FlowError(shown(row, str(error))) from error


START = Verb(
    "start", gettext_lazy("Start"), "start_node", _start, gettext_lazy("Started"),
    warning=lambda row: gettext_lazy(
        "A new node is started as the graph is saved now. Later changes of the graph do not reach "
        "it."
    ),
    form=StartForm,
)  # fmt: skip


@admin.register(Graph)
class GraphAdmin(RowActions):
    """Graphs are added, edited, deleted and started; nodes that were started stay as they are."""

    list_display = ("name", "instance", "version", "updated")
    list_filter = ("instance",)
    list_defer = ("spec",)
    ordering = ("name",)
    search_fields = ("name",)
    search_help_text = gettext_lazy("A complete name.")
    actions = None
    verbs = by_name(START)
    confirm_template = "hipq_flow/admin/start_graph.html"

    class Media:
        css = {"all": ["hipq_flow/admin.css"]}

    updated = column(gettext_lazy("updated"), HipqAdmin.updated)

    def find(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return the graphs with exactly this name."""
        return rows.filter(name=term)

    def heading(self, row: Graph) -> str:
        """Return its name, which is the title of its page."""
        return row.name

    # Who may what

    def _may(self, request: HttpRequest, permission: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{permission}")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may see them: with the permission to change graphs, too."""
        return self._may(request, "edit_graph") or super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may change graphs."""
        return self._may(request, "edit_graph")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change graphs."""
        return self._may(request, "edit_graph")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change graphs."""
        return self._may(request, "edit_graph")

    # The page

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show the page on which a graph is added or edited, and save the spec that was sent."""
        row = None if object_id is None else self.get_object(request, unquote(object_id))
        if object_id is not None and row is None:
            return self.gone(request, object_id)
        may_edit, looks = self._may(request, "edit_graph"), row and request.method != "POST"
        if not (may_edit or (looks and self.has_view_permission(request))):
            raise PermissionDenied
        return self._edit(request, row, may_edit=may_edit)

    def _edit(self, request: HttpRequest, row: Graph | None, *, may_edit: bool) -> HttpResponse:
        if row is None:
            form: SpecForm = NewGraphForm(request.POST if request.method == "POST" else None)
            instance, stored = self._instance, NOTHING
        else:
            form = spec_form(request, row, row.spec, str(row.version))
            instance, stored = row.instance, row.spec
        edited = edit_spec(
            request, form, stored, partial(self._write, request, row), instance=instance
        )
        if edited.saved:
            text = _("%(graph)s was saved.") % {"graph": edited.saved}
            self.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(self.url(Graph, "change", edited.saved.pk))
        context = {"may_edit": may_edit, **self._said_of(request, row), **edited.said}
        return self.shown_page(request, "hipq_flow/admin/spec.html", context)

    def _said_of(self, request: HttpRequest, row: Graph | None) -> dict[str, Any]:
        return {
            "title": _("Add graph") if row is None else row.name,
            "save_label": _("Save"),
            "hint": _("Nodes that were started from it stay as they are."),
            **({} if row is None else self._of_kept(request, row)),
        }

    @property
    def _instance(self) -> str:
        """The instance whose graphs are added here."""
        names = [each.name for each in get_instances() if each.database == self.database]
        return DEFAULT if DEFAULT in names or not names else names[0]

    def _write(self, request: HttpRequest, row: Graph | None, sent: dict[str, Any]) -> Graph:
        """Write a graph, with its entry in the history, or neither."""
        with transaction.atomic(using=self.database), write_transaction(self.database):
            if row is None:
                row = create_graph(sent["name"], sent["spec"], instance=self._instance)
                self.log_addition(request, row, "Made by hand.")
            else:
                change_graph(row, sent["spec"], version=id_from(sent["seen"]) or 0)
                self.log_change(request, row, "Changed spec.")
        return row

    def _of_kept(self, request: HttpRequest, row: Graph) -> dict[str, Any]:
        """Return the part of the context that only a graph that is kept has."""
        may_delete, may_start = self.has_delete_permission(request), self.may(request, "start_node")
        return {
            "is_hidden": is_declared(row.instance, row.name),
            "delete_url": self.url(Graph, "delete", row.pk) if may_delete else "",
            "start_url": self.url(Graph, "start", row.pk) if may_start else "",
        }

    # Starting

    def options(self, request: HttpRequest, verb: Verb, form: VerbForm) -> dict[str, Any]:
        """Return how a graph is started, and by whom."""
        return {**form.options, "by": f"user:{request.user.get_username()}"[:200]}

    def write_down(self, request: HttpRequest, row: Graph, result: Node, said: str) -> None:
        """Write down which node was started."""
        self.log_change(request, row, f"{said} {result}.")

    def target(self, row: Graph, result: Node) -> Node:
        """Return the node that was started."""
        return result

    def url_after(self, row: Graph, result: Node) -> str:
        """Return the address of the node."""
        return self.url(Node, "change", result.pk)

    def confirm_rows(self, rows: Sequence[Graph], verb: Verb) -> list[Any]:
        """Return the pictures of what is started."""
        return [of_spec(row.spec, instance=row.instance) for row in rows]
