"""Nodes: the tree, and the page that says why one does not run and what to press."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from hipq_django.admin.base import column
from hipq_django.admin.display import (
    NOTHING,
    age,
    badge,
    block,
    format_number,
    when,
    when_short,
)
from hipq_django.admin.filters import QueueFilter
from hipq_django.admin.job_panel import standing as standing_of_job
from hipq_django.admin.previews import MAX_READ_CHARS, with_preview
from hipq_django.domain.validation import id_from
from hipq_django.flow.admin.filters import ComponentFilter, PlaceFilter, StatusFilter, has_failed
from hipq_django.flow.admin.graph_pages import GraphPages
from hipq_django.flow.admin.masking import (
    first_line,
    preview,
)
from hipq_django.flow.admin.message_pages import MessagePages
from hipq_django.flow.admin.node_list import NodeList, name_rows, shown_rows
from hipq_django.flow.admin.pictures import of_children
from hipq_django.flow.admin.port_pages import PortPages
from hipq_django.flow.admin.standing import HINTS, badges, note, run_of, unread
from hipq_django.flow.declared_ports import ANY
from hipq_django.flow.declaring import ComponentDeclaration
from hipq_django.flow.explaining import reasons_of
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.logs import shown_entry
from hipq_django.flow.models import Alias, LogEntry, Message, Node, NodePort
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Job, JobType, Queue
from hipq_django.models.masking import shown
from hipq_django.monitoring.counts import OverFirst, capped_count, format_count

MAX_ROWS, MAX_PORTS = 20, 100
"""How many children, runs and log entries are shown, and how many ports."""

MAX_KNOWN = 200
"""How many messages are looked through for sensitive values that an error may quote."""

NEWEST_JOBS = 1_000
"""Among how many jobs of its component the runs of a node are looked for: no index has them."""

SECTIONS = (
    (
        _("Node"),
        (
            "to_component", "to_queue", "names", "to_parent", "created", "creator",
            "last_run", "run_count", "next_alarm", "arguments",
        ),
    ),
    (_("State"), ("state",)),
)  # fmt: skip
READ_ONLY = tuple(name for _section, names in SECTIONS for name in names)


@admin.register(Node)
class NodeAdmin(GraphPages):
    """Nodes are run, paused, terminated and fed; what they are is never edited."""

    list_class = NodeList
    change_form_template = "hipq_flow/admin/node.html"
    change_list_template = "hipq_flow/admin/node_list.html"
    list_display = ("place", "standing", "note", "unread", "component", "ran", "created_by")
    list_display_links = None
    list_filter = (StatusFilter, PlaceFilter, ComponentFilter, QueueFilter)
    search_fields = ("pk",)
    search_help_text = _("A complete id or alias.")
    fieldsets = tuple((name, {"fields": fields}) for name, fields in SECTIONS)
    readonly_fields = READ_ONLY

    class Media:
        css = {"all": ["hipq_flow/admin.css"]}
        js = ["hipq_flow/refresh.js"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: what happens to nodes happens by the actions."""
        return False

    def get_urls(self) -> list[Any]:
        """Return the pages with those of ports and messages."""
        parts = PortPages(NodePort, self), MessagePages(Message, self)
        return [*(url for part in parts for url in part.get_urls()), *super().get_urls()]

    # The list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the nodes with what their pages name."""
        return super().get_queryset(request).select_related("job_type", "queue")

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Return whether the list may be asked for this: also for the children of a node."""
        if lookup == "parent":
            return id_from(value[0] if isinstance(value, list) else value) is not None
        return super().lookup_allowed(lookup, value, request)

    def find(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return the nodes with exactly this id or alias."""
        instances = JobType.objects.using(self.database).values("instance").distinct()
        named = Alias.objects.using(self.database).filter(instance__in=instances, name=term)
        ids = list(named.values_list("node_id", flat=True)[:MAX_ROWS])
        return rows.filter(pk__in=[*ids, *filter(None, [id_from(term)])])

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Say above the list how many nodes have failed, wherever in their trees."""
        failed = Node.objects.using(self.database).filter(has_failed())
        count = capped_count(failed)
        told = {"failed": format_count(count, format_number) if count else ""}
        return super().changelist_view(request, {**(extra_context or {}), **told})

    @admin.display(description=_("node"))
    def place(self, node: Any) -> str:
        """What it is called, beneath its parent or with a link to it."""
        label = self.link(Node, node.pk, node.label)
        if node.is_beneath:
            label = format_html('<span class="hipq-beneath">{}</span>', label)
        elif node.parent_id is not None:
            parent = self.link(Node, node.parent_id, node.parent_label)
            below = gettext("below")
            label = format_html('{} <span class="hipq-age">{} {}</span>', label, below, parent)
        if not node.shows_more:
            return label
        url = f"{self.url(Node, 'changelist')}?parent={node.pk}"
        text = gettext("all children")
        return format_html('{} <a class="hipq-more" href="{}">{}</a>', label, url, text)

    standing = column(_("status"), lambda self, node: badges(node, self.now))
    note = column(pgettext_lazy("node", "details"), lambda self, node: note(node, self.now))
    component = column(_("component"), lambda self, node: node.job_type.name)

    unread = column(_("unread"), lambda self, node: unread(node, self.now))
    ran = column(
        _("last run"),
        lambda self, node: when_short(node.ran_time, self.now) if node.ran_time else NOTHING,
    )

    # The page

    def beside_form(self, request: HttpRequest, node: Node) -> dict[str, Any]:
        """Return where the node stands, its buttons, children and ports."""
        row = shown_rows(Node.objects.using(self.database).filter(pk=node.pk)).get()
        name_rows([row], self.database)
        knowing = not row.is_sensitive or self._learn(node)
        children, ports = self._children(row), self._ports(node)
        return {
            **super().beside_form(request, node),
            **self._of_graph(request, node),
            "panel": self._panel(row, node, run_of(row), knowing),
            "children": children[:MAX_ROWS],
            "has_more_children": len(children) > MAX_ROWS,
            "children_url": f"{self.url(Node, 'changelist')}?parent={node.pk}",
            "ports": ports[:MAX_PORTS],
            "has_more_ports": len(ports) > MAX_PORTS,
            "runs": self._runs(request, node),
            "log": self._log(node) if knowing else [],
            "newest_jobs": format_number(NEWEST_JOBS),
            "max_ports": MAX_PORTS,
        }

    def _of_graph(self, request: HttpRequest, node: Node) -> dict[str, Any]:
        """Return the picture of a graph, and where it is edited; nothing of other nodes."""
        if node.job_type.name != GRAPH:
            return {"graph_url": "", "picture": None}
        may_edit = self.may(request, "edit_graph")
        return {
            "graph_url": self.url(Node, "graph", node.pk) if may_edit else "",
            "picture": of_children(node, lambda pk: self.url(Node, "change", pk)),
        }

    def _panel(self, row: Any, node: Node, job: Job | None, knowing: bool) -> dict[str, Any]:
        reasons = reasons_of(row, job, self.now)
        failed = row.rest == "failed" or isinstance(node.error, dict)
        error = shown(node, node.error) if knowing else first_line(node.error).partition(":")[0]
        line = first_line(error)
        return {
            "label": row.label,
            "component": row.job_type.name,
            "parent": self.link(Node, row.parent_id, row.parent_label) if row.parent_id else "",
            "last_run": age(row.ran_time, self.now) if row.ran_time else "",
            "badges": badges(row, self.now),
            "reasons": [(reason.text, HINTS.get(reason.code, "")) for reason in reasons],
            "is_running": job is not None and not job.is_final and not reasons,
            "job": self.job_link(job.pk) if job else "",
            "error": line if failed and line != NOTHING else "",
            "whole_error": block(error) if failed and line not in (NOTHING, error) else "",
        }

    def _learn(self, node: Node) -> bool:
        """Let a node know the values that a run of it may have quoted; return whether it does.

        A run may have read more than is looked through here: then no text can be shown.
        """
        rows = Message.objects.using(self.database).filter(port__node=node.pk)
        rows = rows.select_related("port")
        found = list(with_preview(rows.order_by("pk"), "data")[: MAX_KNOWN + 1])
        if len(found) > MAX_KNOWN or any(row.size > MAX_READ_CHARS for row in found):
            return False
        node.learn(node.state_values, node.args, *({m.port.name: m.shown} for m in found))
        return True

    def _children(self, row: Any) -> list[dict[str, Any]]:
        found = shown_rows(Node.objects.using(self.database).filter(parent=row.pk))
        failed = list(found.filter(has_failed()).order_by("-pk")[: MAX_ROWS + 1])
        rest = found.exclude(pk__in=[child.pk for child in failed]).order_by("name")
        children = [*failed, *rest[: MAX_ROWS + 1]][: MAX_ROWS + 1]
        name_rows(children, self.database)
        return [
            {
                "link": self.link(Node, child.pk, child.label),
                "component": child.job_type.name,
                "badges": badges(child, self.now),
                "note": note(child, self.now),
                "unread": unread(child, self.now),
            }
            for child in children
        ]

    # Its ports

    def _ports(self, node: Node) -> list[dict[str, Any]]:
        """Return what the page shows of the ports, by a number of queries that does not grow."""
        ports = self._port_rows(node)
        for port in ports:
            port.node = node
        firsts = self._messages([port.first for port in ports if port.first])
        newest = self._messages([port.newest for port in ports if port.newest])
        links, channels = self.links_of(ports), self.channels_of(ports)
        return [
            {
                "name": port.name,
                "direction": port.get_direction_display(),
                "url": self.url(Node, "port", node.pk, port.pk),
                "unread": format_count(port.unread, format_number),
                "first": _preview(port, firsts.get(port.pk)),
                "default": _preview(port, newest.get(port.pk, port if port.has_default else None)),
                "links": links.get(port.pk, ""),
                "channels": channels.get(port.pk, ""),
                "type": port.type,
            }
            for port in ports
        ]

    def _port_rows(self, node: Node) -> list[Any]:
        """Return ports with how many messages lie there, the first, and the newest default."""
        using = self.database
        messages = Message.objects.using(using).filter(port=OuterRef("pk"))
        unread, defaults = messages.filter(as_default=False), messages.filter(as_default=True)
        rows = NodePort.objects.using(using).filter(node=node.pk).exclude(name=ANY)
        found = with_preview(rows, "value").annotate(
            unread=OverFirst.count(unread.order_by("pk")),
            first=unread.order_by("pk").values("pk")[:1],
            newest=defaults.order_by("-pk").values("pk")[:1],
        )
        return list(found.order_by("direction", "pk")[: MAX_PORTS + 1])

    def _messages(self, ids: Sequence[int]) -> dict[int, Any]:
        """Return the messages with these ids, by port."""
        found = Message.objects.using(self.database).filter(pk__in=ids)
        return {message.port_id: message for message in with_preview(found, "data")}

    # What it did

    def _runs(self, request: HttpRequest, node: Node) -> list[dict[str, Any]]:
        if not self.may_view(request, Job):
            return []
        jobs = Job.objects.using(self.database)
        newest = jobs.filter(job_type=node.job_type_id).order_by("-pk").values("pk")[:NEWEST_JOBS]
        mine = jobs.filter(pk__in=newest, job_data__node=node.pk).defer("result")
        return [
            {
                "link": self.job_link(job.pk),
                "standing": badge(*standing_of_job(job)),
                "attempt": job.attempt,
                "updated": when(job.update_time, self.now),
            }
            for job in mine.select_related("queue", "job_type").order_by("-pk")[:MAX_ROWS]
        ]

    def _log(self, node: Node) -> list[tuple[str, str]]:
        rows = LogEntry.objects.using(self.database).filter(node=node.pk)
        return [
            (when(row.create_time, self.now), preview(shown_entry(row.shown, node), row.size))
            for row in with_preview(rows, "entry").order_by("-pk")[:MAX_ROWS]
        ]

    # Its fields

    @admin.display(description=_("component"))
    def to_component(self, node: Node) -> str:
        """A link to the job type, with what the code says of it."""
        link = self.link(JobType, node.job_type_id, node.job_type)
        found = get_declared(node.instance, node.job_type.name)
        if not isinstance(found, ComponentDeclaration):
            missing = gettext("this process's code does not declare it")
            return format_html("{} {}", link, badge(missing, "error"))
        does = (found.component.__doc__ or "").strip().partition("\n")[0]
        return format_html("{} {}", link, does)

    to_queue = column(_("queue"), lambda self, node: self.link(Queue, node.queue_id, node.queue))
    to_parent = column(
        pgettext_lazy("node", "parent"),
        lambda self, node: (
            self.link(Node, node.parent_id, self.label(node.parent)) if node.parent_id else NOTHING
        ),
    )

    @admin.display(description=_("created by"))
    def creator(self, node: Node) -> str:
        """Who started it: a link if that was a node."""
        kind, _colon, pk = node.created_by.partition(":")
        is_node = kind == "node" and id_from(pk) is not None
        return self.link(Node, pk, node.created_by) if is_node else node.created_by or NOTHING

    created = column(_("created"), lambda self, node: when(node.create_time, self.now))
    last_run = column(
        _("last run"),
        lambda self, node: when(node.ran_time, self.now) if node.ran_time else NOTHING,
    )
    run_count = column(_("runs"), lambda self, node: format_number(node.runs))

    @admin.display(description=_("aliases"))
    def names(self, node: Node) -> str:
        """The other names of the node."""
        rows = Alias.objects.using(self.database).filter(node=node.pk).order_by("pk")
        return ", ".join(rows.values_list("name", flat=True)[:MAX_ROWS]) or NOTHING

    @admin.display(description=_("alarm"))
    def next_alarm(self, node: Node) -> str:
        """When it has asked to run again."""
        moments = sorted(m for m in (node.run_time, node.alarm) if m is not None)
        return when(moments[0], self.now) if moments else NOTHING

    arguments = column(_("arguments"), lambda self, node: block(shown(node, node.args)))

    @admin.display(description=_("state"))
    def state(self, node: Node) -> str:
        """The values that the node keeps, without what flows keep there themselves."""
        own = {k: v for k, v in node.state_values.items() if not k.startswith("flow.")}
        return block(shown(node, own))


def _preview(port: NodePort, row: Any) -> str:
    """Return the preview of a row of `with_preview` that lies on a port; '' for None."""
    return "" if row is None else preview(shown(port, row.shown), row.size)
