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
    """Return what a node is called, by its name or alias and its id."""
    return f"{name} ({title(row)})" if name else title(row)


class NodeLinks(HipqAdmin):
    """What all pages of nodes, ports and messages share."""

    def label(self, row: Node) -> str:
        """Return what a node is called, with its id."""
        rows = Alias.objects.using(self.database).filter(node=row.pk).order_by("pk")
        name = row.name or rows.values_list("name", flat=True).first() or ""
        return label_of(row, name)

    def heading(self, row: Node) -> str:
        """Return the title of a node's page; names stay as they were given."""
        label = self.label(row)
        return capfirst(label) if label == title(row) else label

    def names_of(self, nodes: Iterable[Node]) -> dict[int, str]:
        """Return what nodes are called, by one query however many they are."""
        found = {node.pk: node for node in nodes}
        unnamed = [pk for pk, node in found.items() if not node.name]
        rows = Alias.objects.using(self.database).filter(node__in=unnamed).order_by("-pk")
        aliases = dict(rows.values_list("node_id", "name")[:COUNT_LIMIT])
        return {pk: node.name or aliases.get(pk) or title(node) for pk, node in found.items()}

    def port_link(self, arrow: str, port: NodePort, names: dict[int, str]) -> str:
        """Return a link to a port, with an arrow that says which way messages go."""
        url = self.url(Node, "port", port.node_id, port.pk)
        text = f"{names[port.node_id]}.{port.name}"
        return format_html('{}&nbsp;<a href="{}">{}</a>', arrow, url, text)

    def links_of(self, ports: Sequence[NodePort]) -> dict[int, str]:
        """Return links to what ports are connected with, by the ids of the ports."""
        rows, ids = Connection.objects.using(self.database).order_by("pk"), [p.pk for p in ports]
        outgoing = rows.filter(source__in=ids).select_related("target__node")[:MAX_LINKS]
        incoming = rows.filter(target__in=ids).select_related("source__node")[:MAX_LINKS]
        ends = [(each.source_id, "→", each.target) for each in outgoing]
        ends += [(each.target_id, "←", each.source) for each in incoming]
        names = self.names_of(port.node for _id, _arrow, port in ends)
        links: dict[int, str] = {}
        for pk, arrow, port in ends:
            link = self.port_link(arrow, port, names)
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
