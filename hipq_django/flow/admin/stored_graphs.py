"""Graphs that are kept under a name: written as JSON, looked at, and started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _, gettext_lazy

from hipq_django.admin.base import HipqAdmin, column
from hipq_django.admin.row_actions import RowActions, Verb, VerbForm
from hipq_django.conf.instances import get_instances
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.validation import id_from
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import NewGraphForm, SpecForm, StartForm, refuse
from hipq_django.flow.admin.graph_pages import REPLACES, not_allowed, told
from hipq_django.flow.admin.masking import whole
from hipq_django.flow.admin.pictures import of_spec
from hipq_django.flow.exceptions import FlowError, GraphError
from hipq_django.flow.graphs.checking import check
from hipq_django.flow.graphs.named import is_declared
from hipq_django.flow.graphs.problem import Problem, errors_of
from hipq_django.flow.graphs.storing import change_graph, create_graph, start_graph
from hipq_django.flow.models import Graph, Node
from hipq_django.flow.values import NOTHING
from hipq_django.models.shown import shown


def _start(row: Graph, **how: Any) -> Node:
    try:
        return start_graph(row, **how)
    except HipqError as error:  # it may quote a value of the spec
        said = row.redactor.knowing(row.spec).mask_text(str(error))
        raise FlowError(said) from error


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
    verbs = {START.name: START}
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
        """Show the page on which a graph is added or edited, and save what was sent."""
        row = None if object_id is None else self.get_object(request, unquote(object_id))
        if object_id is not None and row is None:
            return self.gone(request, object_id)
        self._check_access(request, row)
        form = self._spec_form(request, row)
        spec: Any = NOTHING if row is None else row.spec
        problems: list[Problem] = []
        if form.is_bound:
            spec, problems = self._read(form, row)
            problems += not_allowed(request, spec, row and row.spec)
            saved = self._save(request, form, row, problems) if "_save" in request.POST else None
            if saved is not None:
                return HttpResponseRedirect(self.url(Graph, "change", saved.pk))
        return self._page(request, row, form, spec, problems)

    def _check_access(self, request: HttpRequest, row: Graph | None) -> None:
        looks = row is not None and request.method != "POST"
        may = self.has_view_permission(request) if looks else self._may(request, "edit_graph")
        if not may:
            raise PermissionDenied

    def _spec_form(self, request: HttpRequest, row: Graph | None) -> SpecForm:
        sent = request.POST if request.method == "POST" else None
        if row is None:
            return NewGraphForm(sent)
        spec = whole(shown(row, row.spec))
        return SpecForm(sent, initial={"spec": spec, "seen": str(row.version)})

    @property
    def _instance(self) -> str:
        """The instance whose graphs are added here."""
        names = [each.name for each in get_instances() if each.database == self.database]
        return DEFAULT if DEFAULT in names or not names else names[0]

    def _read(self, form: SpecForm, row: Graph | None) -> tuple[Any, list[Problem]]:
        """Return the spec that was sent, and what is wrong with it; `NOTHING` if it is none."""
        instance = self._instance if row is None else row.instance
        if not form.is_valid():
            return NOTHING, []
        spec = form.cleaned_data["spec"]
        return spec, check(spec, only_public=True, instance=instance)

    def _save(
        self, request: HttpRequest, form: SpecForm, row: Graph | None, problems: list[Problem]
    ) -> Graph | None:
        """Save a graph, with its entry in the history; return None where that was refused."""
        if not form.is_valid() or errors_of(problems):
            return None
        try:
            with transaction.atomic(using=self.database), write_transaction(self.database):
                saved = self._write(request, form, row)
        except GraphError as error:
            problems[:] = error.problems
            return None
        except HipqError as error:
            if row is None:
                form.add_error("name", str(error))
            else:
                refuse(form, "spec", error, str(row.version), str(REPLACES))
            return None
        text = _("%(graph)s was saved.") % {"graph": saved}
        self.message_user(request, text, messages.SUCCESS)
        return saved

    def _write(self, request: HttpRequest, form: SpecForm, row: Graph | None) -> Graph:
        values = form.cleaned_data
        if row is None:
            saved = create_graph(values["name"], values["spec"], instance=self._instance)
            self.log_addition(request, saved, "Made by hand.")
            return saved
        seen = values["seen"]
        change_graph(row, values["spec"], version=id_from(seen) or 0)
        self.log_change(request, row, "Changed spec.")
        return row

    def _page(
        self,
        request: HttpRequest,
        row: Graph | None,
        form: SpecForm,
        spec: Any,
        problems: list[Problem],
    ) -> HttpResponse:
        instance = self._instance if row is None else row.instance
        context = {
            **told(problems),
            "title": _("Add graph") if row is None else row.name,
            "form": form,
            "is_checked": form.is_bound and spec is not NOTHING,
            "is_hidden": row is not None and is_declared(instance, row.name),
            "may_edit": self._may(request, "edit_graph"),
            "picture": None if spec is NOTHING else of_spec(spec, instance),
            **({} if row is None else self._links(request, row)),
        }
        return self.shown_page(request, "hipq_flow/admin/stored_graph.html", context)

    def _links(self, request: HttpRequest, row: Graph) -> dict[str, Any]:
        """Return where a graph that is kept is deleted and started, by who may."""
        may_delete, may_start = self.has_delete_permission(request), self.may(request, "start_node")
        return {
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
        return [of_spec(row.spec, row.instance) for row in rows]
