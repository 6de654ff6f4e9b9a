"""What is locked before a graph changes: nodes, then ports, each in the order of their ids.

Who terminates a tree locks its nodes, and who writes locks ports, in the same order. So none of
them waits for somebody who waits for him.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Q

from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.domain.validation import MAX_ID
from hipq_django.flow import statements
from hipq_django.flow.family import ancestors_of, ids_of_tree, lock_nodes, tree_of
from hipq_django.flow.graphs.named import graph_named
from hipq_django.flow.graphs.spec import Spec
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Connection, Node, NodePort
from hipq_django.flow.values import is_same

Place = tuple[str, str, str]
"""A port of a spec: the name of its node, its direction, its name."""


def lock_tree(node: Node, spec: object) -> None:
    """Lock what a change of a graph may concern: a child may be older than its parent."""
    lock_nodes(nodes_of_change(node, spec), node.using)


def nodes_of_change(node: Node, spec: object) -> set[int]:
    """Return the ids of a graph, all below it, its root, and the trees that a spec adopts."""
    adopted = _adopted_by(spec, node.instance, set())
    return {*tree_of(node), ancestors_of(node)[-1]} | _trees_of(adopted, node.using)


def lock_adopted(parent: Node | None, spec: object, instance: str, using: str) -> None:
    """Lock the trees that a new graph adopts, with its parent and the root of that."""
    adopted = _trees_of(_adopted_by(spec, instance, set()), using)
    if adopted:
        above = ancestors_of(parent) if parent is not None else []
        lock_nodes({*above[:1], *above[-1:]} | adopted, using)


def _trees_of(ids: Iterator[int], using: str) -> set[int]:
    nodes = Node.objects.using(using).filter(ids_in("pk", {pk for pk in ids if 0 < pk <= MAX_ID}))
    return {pk for root in nodes.values_list("pk", flat=True) for pk in ids_of_tree(root, using)}


def _adopted_by(spec: object, instance: str, seen: set[str]) -> Iterator[int]:
    """Yield the ids of nodes that a spec names, and its graphs; nobody has checked it yet."""
    nodes = spec.get("nodes") if isinstance(spec, Mapping) else None
    for given in nodes.values() if isinstance(nodes, Mapping) else ():
        if not isinstance(given, Mapping):
            continue
        if type(given.get("init")) is int:
            yield given["init"]
        component = given.get("component")
        if isinstance(component, str) and component not in seen:
            seen.add(component)
            yield from _adopted_by(graph_named(instance, component), instance, seen)


def children_of(node: Node) -> dict[str, Node]:
    """Return the children of a graph, by their names."""
    rows = Node.objects.using(node.using).filter(parent=node.pk).order_by("pk")
    return {row.name: row for row in rows.select_related("job_type", "queue")}


def connections_of(
    nodes: Sequence[int], gone: Sequence[int], using: str
) -> dict[tuple[int, int], int]:
    """Return the ids of the connections that a spec decides about, by source and target."""
    inside = Q(source__node__in=nodes, target__node__in=nodes)
    to_gone = Q(source__node__in=nodes, target__node__in=gone)
    from_gone = Q(source__node__in=gone, target__node__in=nodes)
    rows = Connection.objects.using(using).filter(inside | to_gone | from_gone)
    return {
        (source, target): pk for pk, source, target in rows.values_list("pk", "source", "target")
    }


def lock_ports(node: Node, before: Mapping[str, Any], after: Mapping[str, Any], spec: Spec) -> None:
    """Lock the ports that a change of a graph concerns, and all that they lead to.

    `before` and `after` are its specs as they were given, `spec` is what the new one says. Ports
    that stay as they are, and their writers, are left alone.
    """
    there, using = children_of(node), node.using
    nodes = {pk for name, child in there.items() for pk in _changed(name, child, before, after)}
    for wanted in (spec.nodes[name] for name in spec.nodes if name not in there):
        nodes |= _trees_of(iter([wanted.adopted] if wanted.adopted else []), using)
    if any(_named(before, side) != _named(after, side) for side in ("inputs", "outputs")):
        nodes.add(node.pk)
    own = NodePort.objects.using(using).filter(ids_in("node", nodes))
    ids = {*own.values_list("pk", flat=True), *_ends(node, there, spec)}
    if ids:
        rows = NodePort.objects.using(using).filter(ids_in("pk", statements.reached(ids, using)))
        list(locked(rows.order_by("pk"), to_delete=True))


def _named(spec: Mapping[str, Any], side: str) -> set[str]:
    return set(spec.get(side) or ())


def _changed(
    name: str, child: Node, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[int]:
    """Return the ids of the nodes whose ports may change: a child, or all of a graph in a graph."""
    old, new = before["nodes"].get(name), after["nodes"].get(name)
    if new is None:
        return []  # what goes is disconnected only
    if child.job_type.name == GRAPH:
        inner = graph_named(child.instance, new["component"])
        stays = is_same(old, new) and is_same(inner, child.graph)
        return [] if stays else ids_of_tree(child.pk, child.using)
    return [] if is_same(old, new) else [child.pk]


def _ends(node: Node, there: Mapping[str, Node], spec: Spec) -> set[int]:
    """Return the ports, of those that are there, of connections that come or go."""
    using, names = node.using, {"": node.pk, **{name: child.pk for name, child in there.items()}}
    rows = NodePort.objects.using(using).filter(ids_in("node", names.values()))
    ports = {(pk, side, name): row for row, pk, side, name in rows.values_list(*_PORT)}

    def port(place: Place) -> int | None:
        return ports.get((names.get(place[0], 0), place[1], place[2]))

    wanted = {(port(source), port(target)) for source, target in spec.connections()}
    gone = [child.pk for name, child in there.items() if name not in spec.nodes]
    stays = [pk for name, pk in names.items() if not name or name in spec.nodes]
    existing = connections_of(stays, gone, using)
    return {pk for pair in wanted ^ set(existing) for pk in pair if pk is not None}


_PORT = ("pk", "node_id", "direction", "name")
