"""How the pages of nodes name nodes and ports, and link to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst

from hipq_django.admin.base import HipqAdmin
from hipq_django.admin.display import NOTHING
from hipq_django.flow.models import Alias, Channel, Connection, Node, NodePort
from hipq_django.models.base import title
from hipq_django.monitoring.counts import COUNT_LIMIT

MAX_LINKS = 100
"""How many connections, and twice as many channels, are shown."""


def label_of(row: Node, name: str) -> str:
    """Return what a node is called, by its name of `names_of` and its id."""
    return name if name == title(row) else f"{name} ({title(row)})"


def names_of(nodes: Iterable[int], using: str) -> dict[int, str]:
    """Return the names of nodes, else their aliases, else "node 5", by their ids: two queries."""
    ids = set(nodes)
    aliases = Alias.objects.using(using).filter(node__in=ids).order_by("-pk")
    names = Node.objects.using(using).filter(pk__in=ids).exclude(name="")
    known = dict(aliases.values_list("node_id", "name")[:COUNT_LIMIT])
    known |= dict(names.values_list("pk", "name"))
    return {pk: known.get(pk) or title(Node(pk=pk)) for pk in ids}


class NodeLinks(HipqAdmin):
    """What all pages of nodes, ports and messages share."""

    def label(self, row: Node) -> str:
        """Return what a node is called, with its id."""
        return label_of(row, names_of([row.pk], self.database)[row.pk])

    def heading(self, row: Node) -> str:
        """Return the title of a node's page; names stay as they were given."""
        label = self.label(row)
        return capfirst(label) if label == title(row) else label

    def links_of(self, ports: Sequence[NodePort]) -> dict[int, str]:
        """Return links to what ports are connected with, by the ids of the ports."""
        rows, ids = Connection.objects.using(self.database).order_by("pk"), [p.pk for p in ports]
        outgoing = rows.filter(source__in=ids).select_related("target__node")[:MAX_LINKS]
        incoming = rows.filter(target__in=ids).select_related("source__node")[:MAX_LINKS]
        ends = [(each.source_id, "→", each.target) for each in outgoing]
        ends += [(each.target_id, "←", each.source) for each in incoming]
        names = names_of((port.node_id for _id, _arrow, port in ends), self.database)
        links: dict[int, str] = {}
        for pk, arrow, port in ends:
            url = self.url(Node, "port", port.node_id, port.pk)
            text = f"{names[port.node_id]}.{port.name}"
            link = format_html('{}&nbsp;<a href="{}">{}</a>', arrow, url, text)
            links[pk] = format_html("{} {}", links[pk], link) if pk in links else link
        return links

    def channels_of(self, ports: Sequence[NodePort]) -> dict[int, str]:
        """Return the channels of ports, by the ids of the ports."""
        rows = Channel.objects.using(self.database).filter(port__in=[port.pk for port in ports])
        channels: dict[int, list[str]] = {}
        for port, name in rows.order_by("pk").values_list("port_id", "name")[: MAX_LINKS * 2]:
            channels.setdefault(port, []).append(name)
        return {port: ", ".join(names) for port, names in channels.items()}

    def origin(self, context: Any) -> str:
        """Return where a message came from, as its context says."""
        known = context if isinstance(context, dict) else {}
        parts = []
        if isinstance(known.get("node"), int):
            parts.append(self.link(Node, known["node"], title(Node(pk=known["node"]))))
        if isinstance(known.get("run"), int):
            parts.append(self.job_link(known["run"]))
        if known.get("channel"):
            parts.append(str(known["channel"]))
        return format_html_join(", ", "{}", ((part,) for part in parts)) or NOTHING
