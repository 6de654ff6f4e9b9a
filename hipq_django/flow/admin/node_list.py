"""The list of nodes: roots with their first children beneath, what has failed first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Exists, OuterRef, QuerySet, Subquery, TextField
from django.db.models.functions import Cast, Left
from django.http import HttpRequest

from hipq_django.admin.base import RowList
from hipq_django.database.lookups import FirstIds
from hipq_django.flow.admin.filters import has_failed
from hipq_django.flow.admin.node_links import names_of
from hipq_django.flow.explaining import with_unread
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.status import with_status
from hipq_django.models import Job
from hipq_django.models.job_type import redactor_of_all
from hipq_django.monitoring.counts import COUNT_LIMIT, capped_count

MAX_CHILDREN = 8
"""How many children of a node are listed beneath it; its page has them all."""

ERROR_HEAD_CHARS = 160


class NodeList(RowList):
    """Takes a page of nodes by indexes, and then what there is to say of these, by few queries."""

    @property
    def is_tree(self) -> bool:
        """Whether nodes stand beneath their parents: a filter asks for nodes anywhere."""
        return not set(self.params) - {SEARCH_VAR}

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the nodes of the list; "all of them", in the tree, are those that it pages."""
        rows: QuerySet[Any] = super().get_queryset(request, *args, **kwargs)
        chosen = request.POST.get("select_across") == "1"
        return rows.filter(parent__isnull=True) if chosen and self._is_whole else rows

    @property
    def _is_whole(self) -> bool:
        return self.is_tree and not self.query

    def get_results(self, request: HttpRequest) -> None:
        """Take the rows of the page: failed ones first, each root with its first children."""
        everything = self.queryset
        if self._is_whole:
            self.queryset = everything.filter(parent__isnull=True)
        super().get_results(request)
        ids = self._page_ids(self.queryset.order_by())
        beneath = self._children(ids) if self.is_tree else {}
        order = [pk for root in ids for pk in (root, *beneath.get(root, ())[:MAX_CHILDREN])]
        order = list(dict.fromkeys(order))
        rows = {row.pk: row for row in shown_rows(self.root_queryset.filter(pk__in=order))}
        name_rows(rows.values(), self.model_admin.database)  # type: ignore[attr-defined]  # a HipqAdmin
        for pk, row in rows.items():
            row.is_beneath = pk not in ids
            listed = beneath.get(pk)
            row.shows_more = row.has_children if listed is None else len(listed) > MAX_CHILDREN
        self.result_list = [rows[pk] for pk in order if pk in rows]
        self.queryset = everything

    def _page_ids(self, rows: QuerySet[Any]) -> list[int]:
        """Return the ids of the page; failed nodes have an index, so none of the others is read."""
        size = self.list_per_page
        first = (self.page_num - 1) * size
        failed = rows.filter(has_failed())
        ids = list(failed.order_by("-pk").values_list("pk", flat=True)[first : first + size])
        if len(ids) == size:
            return ids
        before = max(0, first - capped_count(failed))
        others = rows.exclude(rest="failed").order_by("-pk").values_list("pk", flat=True)
        return ids + list(others[before : before + size - len(ids)])

    def _children(self, ids: list[int]) -> dict[int, list[int]]:
        """Return the first children of each node: failed ones, then in the order of names."""
        mine = Node.objects.using(self.root_queryset.db).filter(parent=OuterRef("pk"))
        failed = mine.filter(has_failed()).order_by("-pk")[: MAX_CHILDREN + 1]
        named = mine.order_by("name")[: MAX_CHILDREN + 1]
        rows = Node.objects.using(self.root_queryset.db).filter(pk__in=ids)
        found = rows.annotate(failed=FirstIds(failed), named=FirstIds(named))
        return {
            pk: list(dict.fromkeys(_ids(first) + _ids(rest)))
            for pk, first, rest in found.values_list("pk", "failed", "named")
        }


def _ids(text: str | None) -> list[int]:
    return [int(pk) for pk in text.split(",")] if text else []


def shown_rows(nodes: QuerySet[Any]) -> QuerySet[Any]:
    """Return nodes with what lists say of them; nothing that may be large is read."""
    using = nodes.db
    jobs = Job.objects.using(using).filter(pk=OuterRef("job_id"))
    found: QuerySet[Any] = (
        with_unread(with_status(nodes))
        .select_related("job_type", "queue")
        .defer("args", "state_values", "pending", "job_options", "error")
        .annotate(
            job_time=Subquery(jobs.values("scheduled_run_time")[:1]),
            job_worker=Subquery(jobs.values("worker_id")[:1]),
            job_has_answer=Subquery(jobs.values("has_pending_answer")[:1]),
            error_head=Left(Cast("error", TextField()), ERROR_HEAD_CHARS),
            has_children=Exists(
                Node.objects.using(using).filter(parent=OuterRef("pk")).values("pk")
            ),
        )
    )
    return found


def name_rows(rows: Any, using: str) -> None:
    """Give nodes what is told of them: `label`, `parent_label`, `oldest`, `is_sensitive`.

    `oldest` is when the first of the unread messages was written.
    """
    nodes = list(rows)
    ids = {pk for node in nodes for pk in (node.pk, node.parent_id) if pk is not None}
    names = names_of(ids, using)
    oldest = _oldest_unread([node.pk for node in nodes if node.unread], using)
    fields = {
        name: redactor_of_all(name, using).fields for name in {node.instance for node in nodes}
    }
    for node in nodes:
        node.label = names[node.pk]
        node.parent_label = names.get(node.parent_id or 0, "")
        node.oldest = oldest.get(node.pk)
        node.is_sensitive = bool(fields[node.instance])


def _oldest_unread(ids: list[int], using: str) -> dict[int, datetime]:
    """Return when the first message that lies on an in-port was written, by node."""
    unread = Message.objects.using(using).filter(port=OuterRef("pk"), as_default=False)
    first = Subquery(unread.order_by("pk").values("create_time")[:1])
    ports = NodePort.objects.using(using).filter(node__in=ids, direction="in")
    found: dict[int, datetime] = {}
    for node, moment in ports.annotate(first=first).values_list("node", "first")[:COUNT_LIMIT]:
        if moment is not None:
            found[node] = min(moment, found.get(node, moment))
    return found
