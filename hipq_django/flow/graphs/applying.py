"""Makes nodes and connections of a spec, and keeps them as a changed spec says.

Nothing is checked beforehand but the form of a spec: all of it is made, whatever a verb refuses is
noted with its place, and a transaction in which something was refused is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Unpack

from asgiref.sync import sync_to_async
from django.db.models import Q

from hipq_django.conf.rules import DEFAULT
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import write_transaction
from hipq_django.exceptions import HipqError
from hipq_django.flow import creating, lifecycle
from hipq_django.flow.connecting import disconnect
from hipq_django.flow.creating import StartOptions
from hipq_django.flow.exceptions import (
    AliasTakenError,
    FamilyError,
    FlowError,
    GraphError,
    UnknownComponentError,
)
from hipq_django.flow.graphs.children import (
    adopted,
    check_job_type,
    check_stays,
    set_args,
    set_own_ports,
    set_ports,
)
from hipq_django.flow.graphs.locking import check_size, lock_ports, lock_tree
from hipq_django.flow.graphs.named import graph_named
from hipq_django.flow.graphs.problem import MAX_PROBLEMS, Problem
from hipq_django.flow.graphs.publicity import refuse_private
from hipq_django.flow.graphs.spec import End, NodeSpec, Spec, read_spec
from hipq_django.flow.library.graph import GRAPH, SPEC, GraphComponent
from hipq_django.flow.lifecycle import locked_node
from hipq_django.flow.models import Connection, Node, NodePort
from hipq_django.flow.ports import Port, find_row
from hipq_django.flow.values import SIDES, STAGE, is_same

ROUNDED = ("int", "float")
"""A port of the second type takes what one of the first gives."""


# Starting


def start(component: Any, *, instance: str = DEFAULT, **options: Unpack[StartOptions]) -> Node:
    """Create a node of a component, or of a graph, and let it run; all of it or nothing.

    `component` is the name of a component or of a graph, which code declares or the database has, a
    component's class or function, or the spec of a graph as a dict. Options are `args`, what
    `perform` is called with; `parent` and `name`, its place in a tree; `alias`, a name by which it
    is found, and with `on_conflict="return"` the node that has it is returned; `at`, when it runs
    instead of now, though messages such as `data` let it run before, too; `by`, who created it;
    `inputs` and `outputs`, options of ports; `data`, first messages by port; `job`, options of its
    runs' jobs: priority, throttle_factor, timeout, time_windows, queue, data; and `run=False` if it
    is to wait for messages.
    """
    creating.check_given(options)
    given: dict[str, Any] = {**options}
    returns = given.pop("on_conflict", None) == "return"
    spec = spec_of(component, instance)
    try:
        if spec is None:
            return creating.start(component, instance=instance, **given)
        return start_graph(spec, instance, **given)
    except AliasTakenError as error:  # before, or by somebody who was quicker
        if returns:
            return error.node
        raise


def start_graph(
    given: object,
    instance: str,
    *,
    at: datetime | float | None = None,
    run: bool = True,
    data: Mapping[str, Sequence[Any]] | None = None,
    **options: Any,
) -> Node:
    """Create the node of a graph with all its nodes; those that run at once do so `at` a moment."""
    spec = read_spec(given)
    check_size(spec, instance)
    for direction, side in SIDES.items():
        own: dict[str, Any] = {name: {} for name in spec.own_ports(direction)}
        options[side] = own | dict(options.get(side) or {})
    using = creating.database_of(instance)
    with write_transaction(using):
        node = creating.start(GraphComponent, instance=instance, at=at, run=False, **options)
        _Making(node, spec, at).make()
        for port, values in (data or {}).items():
            node.inputs[port].write_many(values)
        if run:
            lifecycle.run_row(node, at=at)
    return node


astart = sync_to_async(start)


def spec_of(component: Any, instance: str) -> Mapping[str, Any] | None:
    if isinstance(component, dict):
        return component
    if isinstance(component, str):
        return graph_named(instance, component)
    return None


# Changing


def apply(node: Node, spec: object, *, only_public: bool = False) -> None:
    """Let a graph be as a new spec says; raise `GraphError` with all problems and change nothing.

    New nodes are started, changed ports and edges follow. Nodes that vanished are disowned and
    terminated, unless the spec says `"removed": "keep"`.
    """
    if node.job_type.name != GRAPH:
        raise not_a_graph(node)
    if only_public:
        refuse_private(node.instance, spec)
    check_size(read_spec(spec), node.instance)
    with write_transaction(node.using):
        lock_tree(node)
        _change(locked_node(node), spec)


def not_a_graph(node: Node) -> GraphError:
    """Return the error of a spec for a node of another component."""
    return GraphError([Problem("spec", f"{node} is no graph.")])


def _change(row: Node, spec: object) -> None:
    """Let a graph, whose tree is locked, be as a spec says."""
    _Making(row, read_spec(spec)).make()
    lifecycle.run_row(row)


class _Making:
    """Makes the children, ports and connections of a graph, whose row is locked or new."""

    def __init__(self, graph: Node, spec: Spec, at: datetime | float | None = None) -> None:
        self._graph = graph
        self._spec = spec
        self._at = at
        self._problems = list(spec.problems)
        self._there: dict[str, Node] = {}
        """Its children before."""

    def make(self) -> None:
        """Make it as the spec says; raise `GraphError` with all that is wrong with that."""
        graph, spec = self._graph, self._spec
        rows = Node.objects.using(graph.using).filter(parent=graph.pk).order_by("pk")
        self._there = {row.name: row for row in rows.select_related("job_type", "queue")}
        before = read_spec(graph.state_values.get(SPEC, {"nodes": {}}))
        lock_ports(graph, self._there, before, spec)
        gone = self._let_go()
        set_own_ports(graph, before, spec)
        nodes = {"": graph}
        for name, wanted in spec.nodes.items():
            with self._noting(f"nodes.{name}"):
                was = before.nodes.get(name) or NodeSpec(wanted.component)
                nodes[name] = self._made(name, was, wanted)
        self._connect(nodes, gone)
        if self._problems:
            raise GraphError(self._problems[:MAX_PROBLEMS])
        own = Node.objects.using(graph.using).filter(pk=graph.pk)
        own.update(state_values={**graph.state_values, SPEC: spec.given})

    # Nodes

    def _let_go(self) -> list[Node]:
        """Disown the children that the spec has not, and let them end; return them."""
        gone = [child for name, child in self._there.items() if name not in self._spec.nodes]
        for child in gone:
            self._graph.disown(child)
            if not self._spec.keeps_removed:
                child.terminate(recursive=True)
        return gone

    def _made(self, name: str, before: NodeSpec, wanted: NodeSpec) -> Node:
        """Return the child of this name, which was there, is adopted or is started."""
        path, child = f"nodes.{name}", self._there.get(name)
        if wanted.component == STAGE and wanted.args:
            check_job_type(path, wanted.args[0], self._graph.instance)
        if child is not None:
            check_stays(path, child, wanted)
            self._change(child, name, before)
            return child
        child = self._new(name, path, wanted)
        for direction, ports in (("in", child.inputs), ("out", child.outputs)):
            for port, values in wanted.first_messages(direction).items():
                with self._noting(f"{path}.{SIDES[direction]}.{port}.init"):
                    ports[port].write_many(values)
        return child

    def _new(self, name: str, path: str, wanted: NodeSpec) -> Node:
        if wanted.adopted is not None:
            child = adopted(path, self._graph, name, wanted)
            self._change(child, name, NodeSpec(wanted.component))
            return child
        with _inside(path, wanted.component):
            return start(
                wanted.component,
                parent=self._graph,
                name=name,
                args=wanted.args,
                inputs=wanted.options("in"),
                outputs=wanted.options("out"),
                job=wanted.job_options,
                run=wanted.init is True,
                at=self._at,
                instance=self._graph.instance,
            )

    def _change(self, child: Node, name: str, before: NodeSpec) -> None:
        """Give a node that stays the arguments, ports and jobs that it is to have.

        Only what differs from the spec before is written.
        """
        wanted = self._spec.nodes[name]
        set_args(child, wanted)
        graph = graph_named(child.instance, wanted.component)
        if graph is not None:
            with _inside(f"nodes.{name}", wanted.component):
                _change(locked_node(child), graph)
        if not is_same(before.job_options, wanted.job_options):
            creating.change_jobs(child, wanted.job_options)
        joined = self._spec.joined_ports
        changed = [
            side
            for side in SIDES
            if set_ports(child, before, wanted, side, joined.get((name, side), set()))
        ]
        if "in" in changed:
            lifecycle.run_row(child)  # it may have waited for a default

    # Connections

    def _connect(self, nodes: Mapping[str, Node], gone: Sequence[Node]) -> None:
        """Add the connections that are missing, and remove those that the spec has not.

        What is `gone` is no more connected with what stays, so that nothing lies there unread, and
        nothing of it comes.
        """
        using = self._graph.using
        there = _connections([node.pk for node in nodes.values()], gone, using)
        missing: dict[Port, list[tuple[str, Port]]] = {}
        for path, source, target in self._joined(nodes):
            if there.pop((source._known_id, target._known_id), None) is None:
                missing.setdefault(source, []).append((path, target))
        if there:
            extra = Connection.objects.using(using).filter(ids_in("pk", list(there.values())))
            disconnect([source for source, _target in there], extra, using)
        for source, targets in missing.items():
            try:
                source.connect(*(target for _path, target in targets))
            except FamilyError as error:  # an adopted node leads back by a connection of its own
                self._problems.append(Problem(targets[0][0], str(error)))

    def _joined(self, nodes: Mapping[str, Node]) -> Iterator[tuple[str, Port, Port]]:
        """Yield the connections of the spec whose ports there are, each with its place."""
        rows: dict[End, NodePort] = {}
        for edge in self._spec.edges:
            if not {end.node for end in edge.ends} <= nodes.keys():
                continue  # of that a problem has been noted
            with self._noting(edge.path):
                for end in edge.ends:
                    rows[end] = rows.get(end) or find_row(nodes[end.node], *end[1:])
                _check_types(rows[edge.source], rows[edge.target])
                source, target = (Port(nodes[e.node], *e[1:], rows[e].pk) for e in edge.ends)
                yield edge.path, source, target

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """Note what a verb refuses, as a problem at this place of the spec."""
        try:
            yield
        except GraphError as error:
            self._problems += error.problems
        except UnknownComponentError as error:
            self._problems.append(Problem(f"{path}.component", str(error)))
        except HipqError as error:
            self._problems.append(Problem(path, str(error)))


@contextmanager
def _inside(path: str, graph: str) -> Iterator[None]:
    """Say of what is wrong with a graph in a graph where it is."""
    try:
        yield
    except GraphError as error:
        said = [f"in graph {graph!r}: {problem}" for problem in error.problems]
        raise GraphError([Problem(f"{path}.component", text) for text in said]) from error


def _connections(
    nodes: Sequence[int], gone: Sequence[Node], using: str
) -> dict[tuple[int, int], int]:
    """Return the ids of the connections that a spec decides about, by source and target."""
    leaves = [child.pk for child in gone]
    inside = Q(source__node__in=nodes, target__node__in=nodes)
    to_gone = Q(source__node__in=nodes, target__node__in=leaves)
    from_gone = Q(source__node__in=leaves, target__node__in=nodes)
    rows = Connection.objects.using(using).filter(inside | to_gone | from_gone)
    found = rows.values_list("pk", "source", "target")
    return {(source, target): pk for pk, source, target in found}


def _check_types(source: NodePort, target: NodePort) -> None:
    """Raise `FlowError` unless one port takes what another one gives."""
    types = source.type, target.type
    if all(types) and source.type != target.type and types != ROUNDED:
        raise FlowError(
            f"{source.name!r} gives {source.type}, and {target.name!r} takes {target.type}."
        )
