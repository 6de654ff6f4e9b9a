"""Whether nodes that are there are those of a spec, and what changes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hipq_django.exceptions import nearest_name
from hipq_django.flow import creating, lifecycle
from hipq_django.flow.aliases import find
from hipq_django.flow.declared_ports import ANY, PortOptions
from hipq_django.flow.declaring import ComponentDeclaration, find_component
from hipq_django.flow.exceptions import FlowError, GraphError
from hipq_django.flow.family import become_parent
from hipq_django.flow.graphs.named import graph_named
from hipq_django.flow.graphs.problem import Problem, short
from hipq_django.flow.graphs.spec import NodeSpec, Spec, read_spec
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.flow.values import is_same
from hipq_django.job_types.registry import get_declared, known_names, names_of


def check_job_type(path: str, name: object, instance: str) -> None:
    """Raise `GraphError` for a stage of a job type that no code declares."""
    declared = get_declared(instance, name) if isinstance(name, str) else None
    if declared is None or isinstance(declared, ComponentDeclaration):
        near = nearest_name(str(name), known_names(instance))
        said = f"{short(name)} is no declared job type{near}"
        raise GraphError([Problem(f"{path}.jobs", said)])


def check_stays(path: str, child: Node, wanted: NodeSpec) -> None:
    """Raise `GraphError` where a spec wants another node in the place of a child."""
    if not _is_of(child, kind_of(wanted, child.instance)):
        hint = "Give the new one another name: a node keeps its component."
        said = f"node {child.pk} is {child.job_type.name!r}."
        raise GraphError([Problem(f"{path}.component", said, hint)])
    if wanted.adopted not in (None, child.pk):
        said = f"the child of this name is node {child.pk}."
        raise GraphError([Problem(f"{path}.init", said)])


def kind_of(wanted: NodeSpec, instance: str) -> str:
    """Return the name of the component that a node of a spec has."""
    is_graph = graph_named(instance, wanted.component) is not None
    return GRAPH if is_graph else find_component(instance, wanted.component).name


def _is_of(node: Node, component: str) -> bool:
    """Return whether a node has this component, whose names may be former ones."""
    return component in names_of(node.instance, node.job_type.name)


def adopted(path: str, graph: Node, name: str, wanted: NodeSpec) -> Node:
    """Return the node that a spec names by its id, as a child now."""
    node = find(wanted.init, instance=graph.instance)
    if node is None:
        raise GraphError([Problem(f"{path}.init", f"there is no node {wanted.init}.")])
    hint = "It needs the same component, arguments and queue, and no parent."
    if differing := list(_differences(node, wanted)):
        said = f"node {node.pk} does not fit: {', '.join(differing)}."
        raise GraphError([Problem(f"{path}.init", said, hint)])
    try:
        become_parent(graph, node, name)
    except FlowError as error:  # it has a parent, or is above the graph
        said = f"node {node.pk} does not fit: {error}"
        raise GraphError([Problem(f"{path}.init", said, hint)]) from error
    return node


def _differences(node: Node, wanted: NodeSpec) -> Iterator[str]:
    """Yield why a node that is there is not the one that a spec describes."""
    kind = kind_of(wanted, node.instance)
    if not _is_of(node, kind):
        yield f"its component is {node.job_type.name!r}, not {kind!r}"
    if not is_same(node.args, wanted.args):
        yield "its args differ"  # which may be secrets
    declared = get_declared(node.instance, node.job_type.name)
    usual = node.queue.name if declared is None else declared.queue
    has = node.job_options.get("queue") or usual
    queue = wanted.queue or find_component(node.instance, kind).queue
    if has != queue:
        yield f"its queue is {has!r}, not {queue!r}"


def set_args(child: Node, wanted: NodeSpec) -> None:
    """Let the runs of a child from now on be called with other arguments."""
    if is_same(wanted.args, child.args):
        return
    find_component(child.instance, child.job_type.name).check_args(wanted.args)
    Node.objects.using(child.using).filter(pk=child.pk).update(args=list(wanted.args))
    lifecycle.run_row(child)


def set_ports(
    child: Node, before: NodeSpec, wanted: NodeSpec, direction: str, kept: set[str]
) -> bool:
    declared = find_component(child.instance, child.job_type.name)
    own = plain(read_spec(child.graph).own_ports(direction)) if declared.name == GRAPH else {}
    old = own | creating.merged(declared, direction, before.options(direction))
    new = own | creating.merged(declared, direction, wanted.options(direction))
    if ANY in new:
        new |= {name: replace(new[ANY], name=name) for name in (kept & old.keys()) - new.keys()}
    return creating.change_ports(child, direction, old, new)


def set_own_ports(graph: Node, before: Spec, spec: Spec) -> None:
    """Give a graph its own ports; the spec says nothing of their options, so these stay."""
    for direction, there in (("in", graph.inputs), ("out", graph.outputs)):
        wanted = spec.own_ports(direction)
        known = {*before.own_ports(direction), *(name for name in there if name in wanted)}
        creating.change_ports(graph, direction, plain(known), plain(wanted))


def plain(names: Iterable[str]) -> dict[str, PortOptions]:
    return {name: PortOptions(name) for name in names}
