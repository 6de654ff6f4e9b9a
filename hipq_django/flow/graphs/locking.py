"""What is locked before a graph changes: nodes, then ports, each in the order of their ids.

Who terminates a tree locks its nodes, and who writes locks ports, in the same order. So none of
them waits for somebody who waits for him.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.flow import statements
from hipq_django.flow.exceptions import GraphError
from hipq_django.flow.family import ancestors_of, ids_of_tree, lock_nodes, tree_of
from hipq_django.flow.graphs.named import graph_named
from hipq_django.flow.graphs.problem import Problem
from hipq_django.flow.graphs.spec import MAX_NODES, End, Spec, read_spec
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node, NodePort
from hipq_django.flow.values import is_same


def lock_tree(node: Node) -> None:
    """Lock the nodes that a change of a graph concerns: a child may be older than its parent."""
    lock_nodes(nodes_of_change(node), node.using)


def nodes_of_change(node: Node) -> set[int]:
    """Return the ids of the nodes that a change of a graph locks: its tree, and its root."""
    return {*tree_of(node), ancestors_of(node)[-1]}


def check_size(spec: Spec, instance: str) -> None:
    """Raise `GraphError` for too many nodes, or for graphs that contain each other."""
    nodes = islice(_nodes_within(spec, instance, ()), MAX_NODES + 1)
    if sum(1 for _ in nodes) > MAX_NODES:
        text = f"there are more than {MAX_NODES:,} with those of graphs in it."
        raise GraphError([Problem("nodes", text, "Start several graphs.")])


def _nodes_within(spec: Spec, instance: str, inside: tuple[str, ...]) -> Iterator[str]:
    """Yield the components of the nodes of a spec, and of the graphs that these are."""
    for node in spec.nodes.values():
        name = node.component
        yield name
        if name in inside:
            ring = " → ".join([*inside[inside.index(name) :], name])
            raise GraphError([Problem("nodes", f"graphs contain each other: {ring}.")])
        inner = graph_named(instance, name)
        if inner is not None:
            yield from _nodes_within(read_spec(inner), instance, (*inside, name))


def lock_ports(node: Node, there: Mapping[str, Node], before: Spec, after: Spec) -> None:
    """Lock the ports that a change of a graph concerns, and all that they lead to.

    `there` are its children. Ports that stay as they are, and their writers, are left alone.
    """
    using = node.using
    nodes = {pk for name, child in there.items() for pk in _changed(name, child, before, after)}
    if any(before.own_ports(side) != after.own_ports(side) for side in ("in", "out")):
        nodes.add(node.pk)
    names = {node.pk: "", **{child.pk: name for name, child in there.items()}}
    joined = {edge.ends for edge in before.edges} ^ {edge.ends for edge in after.edges}
    ends = {end for pair in joined for end in pair}
    rows = NodePort.objects.using(using).filter(ids_in("node", {*nodes, *names}))
    ids = {
        pk
        for pk, owner, side, name in rows.values_list("pk", "node_id", "direction", "name")
        if owner in nodes or End(names[owner], side, name) in ends
    }
    if ids:
        rows = NodePort.objects.using(using).filter(ids_in("pk", statements.reached(ids, using)))
        list(locked(rows.order_by("pk"), to_delete=True))


def _changed(name: str, child: Node, before: Spec, after: Spec) -> list[int]:
    """Return the ids of the nodes whose ports may change: a child, or all of a graph in a graph."""
    if name not in after.nodes:
        return []  # what goes is disconnected only
    old, new = (spec.given["nodes"].get(name) for spec in (before, after))
    if child.job_type.name == GRAPH:
        inner = graph_named(child.instance, after.nodes[name].component)
        stays = is_same(old, new) and is_same(inner, child.graph)
        return [] if stays else ids_of_tree(child.pk, child.using)
    return [] if is_same(old, new) else [child.pk]
