"""How an operator does something to nodes: from the list and from a page, after a confirmation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _, ngettext, override

from hipq_django.admin.display import format_number
from hipq_django.admin.row_pages import MAX_SHOWN, RowPages
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.node_list import name_rows, shown_rows
from hipq_django.flow.admin.standing import badges, note
from hipq_django.flow.admin.verbs import VERBS, ConfirmForm, Verb, failed_above
from hipq_django.flow.models import Alias, Node
from hipq_django.models.base import title
from hipq_django.monitoring.counts import COUNT_LIMIT

MAX_NODES = 900
"""How many nodes one action takes: each is a transaction of its own, and a request is short. Their
ids come back with the confirmation, and Django takes a form with at most 1,000 fields."""


class NodeActions(RowPages):
    """The actions of the list and the buttons of a node's page: each asks before it is done."""

    actions: Any = tuple(VERBS)

    def has_run_node_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may run, pause and resume nodes."""
        return self.may(request, "run_node")

    def has_terminate_node_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may terminate and delete nodes."""
        return self.may(request, "terminate_node")

    # From the list

    @admin.action(permissions=["run_node"], description=_("Run the selected nodes …"))
    def run(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Let nodes run that may run by themselves."""
        return self._ask_or_do(request, VERBS["run"], queryset)

    @admin.action(permissions=["run_node"], description=_("Run the selected nodes by force …"))
    def run_by_force(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Let nodes run, also failed and terminated ones."""
        return self._ask_or_do(request, VERBS["run_by_force"], queryset)

    @admin.action(permissions=["run_node"], description=_("Pause the selected nodes …"))
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Let nodes not run until they are resumed."""
        return self._ask_or_do(request, VERBS["pause"], queryset)

    @admin.action(permissions=["run_node"], description=_("Resume the selected nodes …"))
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Let nodes go on."""
        return self._ask_or_do(request, VERBS["resume"], queryset)

    @admin.action(permissions=["terminate_node"], description=_("Terminate the selected nodes …"))
    def terminate(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Let nodes shut down, as far as the form says."""
        return self._ask_or_do(request, VERBS["terminate"], queryset)

    # From the page

    def buttons(self, request: HttpRequest, node: Node) -> list[dict[str, Any]]:
        """Return what this user may do to this node now."""
        return [
            {
                "label": verb.label,
                "url": self.url(Node, verb.name, node.pk),
                "is_dangerous": verb.is_dangerous,
            }
            for verb in VERBS.values()
            if verb.is_of_use(node) and self.may(request, verb.permission)
        ]

    def get_urls(self) -> list[Any]:
        """Return the pages with one more address for each button."""
        own = [self.address(name, self._page_of(verb)) for name, verb in VERBS.items()]
        return [*own, *super().get_urls()]

    @staticmethod
    def _page_of(verb: Verb) -> Callable[..., HttpResponse]:
        def ask_or_do(pages: NodeActions, request: HttpRequest, object_id: str) -> HttpResponse:
            pages.require(request, verb.permission)
            node = pages.get_object(request, object_id)
            if node is None:
                return pages.gone(request, object_id)
            rows = pages.get_queryset(request).filter(pk=node.pk)
            return pages._ask_or_do(request, verb, rows, node) or pages._back_to(node)

        return ask_or_do

    def _back_to(self, node: Node) -> HttpResponse:
        if node.exists():
            return HttpResponseRedirect(self.url(Node, "change", node.pk))
        return HttpResponseRedirect(self.url(Node, "changelist"))

    # The confirmation

    def _ask_or_do(
        self, request: HttpRequest, verb: Verb, nodes: QuerySet[Any], node: Node | None = None
    ) -> HttpResponse | None:
        """Show what would be done; do it, and return None, once that is confirmed.

        `node` is the one whose page asks; nothing is done where there are too many.
        """
        ids = self._ids(request, nodes)
        if not ids:
            return None
        ancestors = self._failed_above(ids) if verb.form.offers_ancestors else []
        form = verb.form(_confirmed(request), ancestors=ancestors)
        if not form.is_valid():
            return self._confirm_page(request, verb, form, ids, node)
        self._perform_each(request, [*form.first, *ids], verb, form)
        return None

    def _ids(self, request: HttpRequest, nodes: QuerySet[Any]) -> list[int]:
        ids = list(nodes.order_by("pk").values_list("pk", flat=True)[: MAX_NODES + 1])
        if 0 < len(ids) <= MAX_NODES:
            return ids
        most = _("Nothing was done: select at most %(count)s nodes at a time.")
        gone = _("Nothing was done: the nodes are not in this list any more.")
        text = most % {"count": format_number(MAX_NODES)} if ids else gone
        self.message_user(request, text, messages.ERROR)
        return []

    def _failed_above(self, ids: Sequence[int]) -> list[tuple[str, str]]:
        """Return the failed nodes above some others, as choices of a form."""
        rows = self._shown(failed_above(ids, Node.objects.using(self.database)))
        return [(str(row.pk), _named(row)) for row in rows]

    def _shown(self, nodes: QuerySet[Any]) -> list[Any]:
        rows = list(shown_rows(nodes))
        name_rows(rows, self.database)
        return rows

    def _confirm_page(
        self,
        request: HttpRequest,
        verb: Verb,
        form: ConfirmForm,
        ids: Sequence[int],
        node: Node | None,
    ) -> HttpResponse:
        first = Node.objects.using(self.database).filter(pk__in=ids[:MAX_SHOWN]).order_by("pk")
        rows = [self._confirm_row(row, verb) for row in self._shown(first)]
        many = ngettext("%(count)s node", "%(count)s nodes", len(ids))
        what = self.label(node) if node else many % {"count": format_number(len(ids))}
        context = {
            "title": _("%(verb)s: %(what)s?") % {"verb": verb.label, "what": what},
            "original": node,
            "verb": verb,
            "label": verb.label,
            "effect": verb.effect,
            "is_dangerous": verb.is_dangerous,
            "form": form,
            "rows": rows,
            "more": len(ids) - len(rows),
            "does_nothing": len(ids) == len(rows) and all(row["is_left"] for row in rows),
            "ids": () if node else ids,
            "checkbox": ACTION_CHECKBOX_NAME,
            "back": self.url(Node, "change", node.pk) if node else request.get_full_path(),
        }
        return self.page(request, "confirm", context)

    def _confirm_row(self, row: Any, verb: Verb) -> dict[str, Any]:
        return {
            "link": self.link(Node, row.pk, row.label),
            "badges": badges(row, self.now),
            "note": note(row, self.now),
            "component": row.job_type.name,
            "is_left": not verb.is_of_use(row),
        }

    # What is confirmed

    def _perform_each(
        self, request: HttpRequest, ids: Sequence[int], verb: Verb, form: ConfirmForm
    ) -> None:
        """Do it to each node on its own; what is refused does not stop the others."""
        refusals = [text for pk in ids if (text := self._refusal(request, pk, verb, form))]
        if done := len(ids) - len(refusals):
            one = _("%(done)s: %(node)s.")
            many = ngettext("%(done)s: %(count)s node.", "%(done)s: %(count)s nodes.", done)
            text = (one if len(ids) == 1 else many) % {
                "done": form.done or verb.done,
                "count": format_number(done),
                "node": title(Node(pk=ids[0])),
            }
            self.message_user(request, text, messages.SUCCESS)
        self.report(request, refusals)

    def _refusal(self, request: HttpRequest, pk: int, verb: Verb, form: ConfirmForm) -> str:
        """Do it to one node; return why it was refused, '' where it was not."""
        node = self.get_queryset(request).filter(pk=pk).first()
        if node is None:
            return _("node %(id)s was deleted.") % {"id": pk}
        if not verb.is_of_use(node):
            return _("node %(id)s was left as it is: there is nothing to do.") % {"id": pk}
        try:
            self._perform(request, node, verb, form)
        except HipqError as error:
            return _("node %(id)s: %(error)s") % {"id": pk, "error": error}
        return ""

    def _perform(self, request: HttpRequest, node: Node, verb: Verb, form: ConfirmForm) -> None:
        """Do it and write it down in the history, both or neither."""
        with transaction.atomic(using=self.database):
            verb.perform(node, **form.options)
            with override(None):  # the history is English
                self.log_change(request, node, f"{form.done or verb.done}.")

    # What all pages of nodes share

    def label(self, row: Node) -> str:
        """Return what a node is called, with its id."""
        rows = Alias.objects.using(self.database).filter(node=row.pk).order_by("pk")
        name = row.name or rows.values_list("name", flat=True).first()
        return f"{name} ({title(row)})" if name else title(row)

    def heading(self, row: Node) -> str:
        """Return the title of a node's page; names stay as they were given."""
        label = self.label(row)
        return capfirst(label) if label == title(row) else label

    def called(self, nodes: Iterable[Node]) -> dict[int, str]:
        """Return what nodes are called, by one query however many they are."""
        found = {node.pk: node for node in nodes}
        unnamed = [pk for pk, node in found.items() if not node.name]
        rows = Alias.objects.using(self.database).filter(node__in=unnamed).order_by("-pk")
        aliases = dict(rows.values_list("node_id", "name")[:COUNT_LIMIT])
        return {pk: node.name or aliases.get(pk) or title(node) for pk, node in found.items()}

    def page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        """Return one more page of this admin, made by a template of its own."""
        return self.shown_page(request, f"hipq_flow/admin/{name}.html", context)


def _confirmed(request: HttpRequest) -> Any:
    """Return the form that was sent, None where nothing was confirmed yet."""
    sent = request.method == "POST" and "confirmed" in request.POST
    return request.POST if sent else None


def _named(row: Any) -> str:
    """Return what a node of `name_rows` is called, with its id."""
    name = row.name or row.alias
    return f"{name} ({title(row)})" if name else title(row)
