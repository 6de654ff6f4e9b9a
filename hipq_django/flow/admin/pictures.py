"""What the picture of a graph shows: its children as they are, or a spec as it would be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django.db.models import OuterRef, QuerySet
from django.utils.translation import gettext as _

from hipq_django.admin.display import format_number
from hipq_django.flow.admin.filters import STATUS_NAMES
from hipq_django.flow.admin.node_list import shown_rows
from hipq_django.flow.admin.standing import TONES
from hipq_django.flow.declared_ports import ANY
from hipq_django.flow.declaring import all_components
from hipq_django.flow.drawing import Box, Drawing, Line, Mark, draw
from hipq_django.flow.graphs.spec import Spec, read_spec
from hipq_django.flow.models import Connection, Message, Node, NodePort
from hipq_django.flow.status import derived
from hipq_django.flow.values import STAGE
from hipq_django.monitoring.counts import OverFirst, format_count

MAX_CHILDREN = 300
"""How many nodes are drawn; a table is easier to read long before."""

OWN_INPUTS, OWN_OUTPUTS = "->graph", "graph->"
"""The graph's own ports, as boxes at both ends; the name of a node has no arrow in it."""

Named = tuple[str, str]


class Picture(NamedTuple):
    """A drawing, and the same as text for a table."""

    drawing: Drawing
    boxes: Sequence[Box]
    lines: Sequence[Line]
    is_cut: bool

    @property
    def joined(self) -> list[Named]:
        """From which port to which the lines go, in words."""
        titles = {box.key: box.title for box in self.boxes}
        return [
            (
                f"{titles.get(line.source, line.source)}.{line.out}",
                f"{titles.get(line.target, line.target)}.{line.into}",
            )
            for line in self.lines
        ]


def of_children(graph: Node, url: Callable[[int], str]) -> Picture:
    """Return the picture of a node's children as they are now."""
    using = graph.using
    found = shown_rows(Node.objects.using(using).filter(parent=graph.pk)).order_by("pk")
    children = list(found[: MAX_CHILDREN + 1])
    names = {child.pk: child.name for child in children[:MAX_CHILDREN]}
    ports = _ports(NodePort.objects.using(using).filter(node__in=[graph.pk, *names]))
    ends = {port.pk: _end(port, graph.pk, names) for port in ports}
    boxes = [
        Box(
            child.name,
            child.name,
            child.job_type.name,
            _status(child),
            TONES[derived(child)],
            _marks(ports, child.pk, "in"),
            _marks(ports, child.pk, "out"),
            url(child.pk),
        )
        for child in children[:MAX_CHILDREN]
    ]
    rows = Connection.objects.using(using).filter(source__in=ends, target__in=ends)
    pairs = rows.order_by("pk").values_list("source_id", "target_id")
    lines = [Line(*ends[source], *ends[target]) for source, target in pairs]
    own = _own_boxes(_marks(ports, graph.pk, "in"), _marks(ports, graph.pk, "out"))
    boxes = [*own, *boxes]
    return Picture(draw(boxes, lines), boxes, lines, len(children) > MAX_CHILDREN)


def _status(child: Any) -> str:
    words = [str(STATUS_NAMES[derived(child)])]
    if child.paused:
        words.append(_("paused"))
    return ", ".join(words)


def of_spec(spec: Any, *, instance: str = "", node: Node | None = None) -> Picture:
    """Return the picture of a graph as a spec would make it, whatever is wrong with that.

    Each node says whether it is new, stays, or goes.
    """
    nodes = _dict(_dict(spec).get("nodes"))
    before: dict[str, str] = {}
    if node is not None:
        there = Node.objects.using(node.using).filter(parent=node.pk).order_by("pk")
        instance, before = node.instance, dict(there.values_list("name", "job_type__name"))
    lines = list(_lines(read_spec(spec)))
    boxes = _own_boxes(
        _named(line.out for line in lines if line.source == OWN_INPUTS),
        _named(line.into for line in lines if line.target == OWN_OUTPUTS),
    )
    declared = {component.name: component for component in all_components(instance)}
    goes = [name for name in before if name not in nodes]
    for name in sorted(nodes, key=before.__contains__)[:MAX_CHILDREN]:  # new ones first
        given = _dict(nodes[name])
        ports = declared.get(STAGE if "jobs" in given else _component(given))
        box = _wanted(name, given, ports, lines)
        status, tone = (_("stays"), "completed") if name in before else (_("new"), "running")
        boxes.append(replace(box, status=status, tone=TONES[tone]))
    how = _("disowned") if _dict(spec).get("removed") == "keep" else _("terminated")
    boxes += [Box(name, name, before[name], how, TONES["failed"]) for name in goes[:MAX_CHILDREN]]
    is_cut = max(len(nodes), len(goes)) > MAX_CHILDREN
    return Picture(draw(boxes, lines), boxes, lines, is_cut)


def _wanted(name: str, given: dict[str, Any], declared: Any, lines: Sequence[Line]) -> Box:
    """Return the box of a node of a spec, with all ports that are declared, given or joined."""
    ins, outs = (list(declared.inputs), list(declared.outputs)) if declared else ([], [])
    ins = [*ins, *_dict(given.get("inputs"))]
    outs = [*outs, *_dict(given.get("outputs"))]
    ins += [line.into for line in lines if line.target == name]
    outs += [line.out for line in lines if line.source == name]
    return Box(name, name, _component(given), inputs=_named(ins), outputs=_named(outs))


def _component(given: Any) -> str:
    """Return what a node of a spec says that it is."""
    if "jobs" in _dict(given):
        return _("jobs: %(type)s") % {"type": given["jobs"]}
    return str(_dict(given).get("component", "?"))


def _own_boxes(inputs: Sequence[Mark], outputs: Sequence[Mark]) -> list[Box]:
    boxes = []
    if inputs:
        boxes.append(Box(OWN_INPUTS, _("inputs"), _("of the graph"), outputs=inputs))
    if outputs:
        boxes.append(Box(OWN_OUTPUTS, _("outputs"), _("of the graph"), inputs=outputs))
    return boxes


# Of rows


def _ports(rows: QuerySet[NodePort]) -> list[Any]:
    unread = Message.objects.using(rows.db)
    counted_rows = rows.exclude(name=ANY).defer("value", "value_context", "meta")
    return list(counted_rows.annotate(unread=OverFirst.count(_of_port(unread))).order_by("pk"))


def _of_port(messages: QuerySet[Message]) -> QuerySet[Message]:
    return messages.filter(port=OuterRef("pk"), as_default=False).order_by("pk")


def _end(port: Any, graph: int, names: Mapping[int, str]) -> Named:
    if port.node_id == graph:
        return (OWN_INPUTS if port.direction == "in" else OWN_OUTPUTS), port.name
    return names[port.node_id], port.name


def _marks(ports: Iterable[Any], node: int, direction: str) -> list[Mark]:
    return [
        Mark(port.name, format_count(port.unread, format_number) if port.unread else "")
        for port in ports
        if port.node_id == node and port.direction == direction
    ]


# Of a spec, which may be anything


def _lines(spec: Spec) -> Iterable[Line]:
    for edge in spec.edges:
        source, target = edge.ends
        yield Line(source.node or OWN_INPUTS, source.port, target.node or OWN_OUTPUTS, target.port)


def _named(names: Iterable[str]) -> list[Mark]:
    return [Mark(name) for name in dict.fromkeys(names) if name != ANY]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
