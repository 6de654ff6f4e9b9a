"""Makes nodes and connections of a spec, and keeps them as a changed spec says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple, Unpack

from asgiref.sync import sync_to_async

from hipq_django.conf.rules import DEFAULT
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.serialization import to_json
from hipq_django.flow import creating, lifecycle
from hipq_django.flow.aliases import find
from hipq_django.flow.connecting import disconnect
from hipq_django.flow.creating import StartOptions
from hipq_django.flow.declared_ports import ANY, PortOptions
from hipq_django.flow.declaring import find_component
from hipq_django.flow.exceptions import (
    AliasTakenError,
    FamilyError,
    GraphError,
    UnknownPortError,
)
from hipq_django.flow.family import become_parent
from hipq_django.flow.graphs.check import problems_of
from hipq_django.flow.graphs.knowing import facts_of
from hipq_django.flow.graphs.locking import (
    children_of,
    connections_of,
    lock_adopted,
    lock_ports,
    lock_tree,
)
from hipq_django.flow.graphs.named import graph_named
from hipq_django.flow.graphs.problem import WARNING, Problem, errors_of
from hipq_django.flow.graphs.publicity import check_public
from hipq_django.flow.graphs.spec import NodeSpec, Spec, read_spec
from hipq_django.flow.library.graph import GRAPH, SPEC, Graph
from hipq_django.flow.lifecycle import locked_node
from hipq_django.flow.models import Connection, Node
from hipq_django.flow.ports import Port, declared_port, find_row
from hipq_django.flow.values import SIDES, is_same


def check(
    spec: object, *, only_public: bool = False, instance: str = DEFAULT, node: Node | None = None
) -> list[Problem]:
    """Return all that is wrong with the spec of a graph, and what looks wrong as warnings.

    `only_public`: for one from outside. `node`: the graph that is to be as it says.
    """
    found = problems_of(spec, facts_of(instance if node is None else node.instance, node))
    errors = errors_of(found)
    places = {problem.path for problem in errors}
    outside = check_public(instance, spec) if only_public and isinstance(spec, Mapping) else []
    errors += [problem for problem in outside if problem.path not in places]
    return [*errors, *(problem for problem in found if problem.level == WARNING)]


acheck = sync_to_async(check)


def checked_spec(spec: object, **options: Any) -> Spec:
    """Return a spec; raise `GraphError` with all its problems. Options are those of `check`."""
    if problems := errors_of(check(spec, **options)):
        raise GraphError(problems)
    return read_spec(to_json(spec))  # as it was checked: its keys are text


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
    spec = _spec_of(component, instance)
    try:
        if spec is None:
            return creating.start(component, instance=instance, **given)
        return _start_graph(spec, instance, **given)
    except AliasTakenError as error:  # before, or by somebody who was quicker
        if returns:
            return error.node
        raise


def _start_graph(
    spec: Mapping[str, Any],
    instance: str,
    *,
    at: datetime | float | None = None,
    run: bool = True,
    data: Mapping[str, Sequence[Any]] | None = None,
    **options: Any,
) -> Node:
    """Create the node of a graph with all its nodes; those that run at once do so `at` a moment."""
    checked = checked_spec(spec, instance=instance)
    for direction, side in SIDES.items():
        own: dict[str, Any] = {name: {} for name in checked.own_ports(direction)}
        options[side] = own | dict(options.get(side) or {})
    using = creating.database_of(instance)
    with write_transaction(using):
        lock_adopted(options.get("parent"), spec, instance, using)
        node = creating.start(Graph, instance=instance, at=at, run=False, **options)
        _apply(node, checked, spec, at)
        if ANY not in options["inputs"]:  # on one that the spec lacks, messages would stay unread
            creating.change_ports(node, "in", {ANY: PortOptions(ANY)}, {})
        for port, values in (data or {}).items():
            node.inputs[port].write_many(values)
        if run:
            lifecycle.run_row(node, at=at)
    return node


astart = sync_to_async(start)


def checked_component(component: Any, instance: str) -> Any:
    """Return what `start` takes, as JSON: the name of a component or of a graph, or a spec.

    Raise `UnknownComponentError`, or `GraphError` with all problems.
    """
    spec = _spec_of(component, instance)
    if spec is None:
        return find_component(instance, component).name
    checked_spec(spec, instance=instance)
    return to_json(component)


def _spec_of(component: Any, instance: str) -> Mapping[str, Any] | None:
    if isinstance(component, dict):
        return component
    if isinstance(component, str):
        return graph_named(instance, component)
    return None


def apply(node: Node, spec: object, *, only_public: bool = False) -> None:
    """Let a graph be as a new spec says; raise `GraphError` with all problems and change nothing.

    New nodes are started, changed ports and edges follow. Nodes that vanished are disowned and
    terminated, unless the spec says `"removed": "keep"`.
    """
    with write_transaction(node.using):
        lock_tree(node, spec)
        _change(locked_node(node), spec, only_public=only_public)


def _change(row: Node, spec: object, *, only_public: bool = False) -> None:
    """Do the same with a row whose tree is locked."""
    checked = checked_change(row, spec, only_public=only_public)
    _apply(row, checked, spec)
    lifecycle.run_row(row)


def checked_change(node: Node, spec: object, *, only_public: bool = False) -> Spec:
    """Return what a graph is to be; raise `GraphError` if it cannot be, or is no graph."""
    if node.job_type.name != GRAPH:
        raise GraphError([Problem("spec", f"{node} is no graph.")])
    return checked_spec(spec, only_public=only_public, instance=node.instance, node=node)


def _apply(node: Node, spec: Spec, given: Any, at: datetime | float | None = None) -> None:
    """Make the children, ports and connections of a graph, whose row is locked or new."""
    stored = _keep_spec(node, given)
    before = read_spec(stored)
    lock_ports(node, stored, to_json(given), spec)
    there = children_of(node)
    gone = [there[name] for name in there if name not in spec.nodes]
    _let_go(node, gone, spec)
    _set_own_ports(node, before, spec)
    nodes, joined = {"": node}, spec.joined_ports()
    for name, wanted in spec.nodes.items():
        change = Change(name, before.nodes.get(name), wanted, joined)
        nodes[name] = _changed(there[name], change) if name in there else _new(node, change, at)
    _connect(node, nodes, gone, spec)


def _keep_spec(node: Node, given: Any) -> dict[str, Any]:
    """Store a spec in the state of a graph; return the one that it had."""
    rows = Node.objects.using(node.using).filter(pk=node.pk)
    state = rows.values_list("state_values", flat=True).get()
    rows.update(state_values={**state, SPEC: given})
    return state.get(SPEC) or {"nodes": {}}


def _let_go(node: Node, gone: Sequence[Node], spec: Spec) -> None:
    for child in gone:
        node.disown(child)
        if not spec.keeps_removed:
            child.terminate(recursive=True)


def _set_own_ports(node: Node, before: Spec, spec: Spec) -> None:
    """Give a graph its own ports; the spec says nothing of their options, so these stay."""
    for direction, there in (("in", node.inputs), ("out", node.outputs)):
        wanted = spec.own_ports(direction)
        known = {*before.own_ports(direction), *(name for name in there if name in wanted)}
        creating.change_ports(node, direction, _plain(known), _plain(wanted))


def _plain(names: Iterable[str]) -> dict[str, PortOptions]:
    return {name: PortOptions(name) for name in names}


# Nodes


class Change(NamedTuple):
    """What a node of a graph is to be, and what the spec before said of it."""

    name: str
    before: NodeSpec | None
    wanted: NodeSpec
    joined: Mapping[tuple[str, str], set[str]]


def _new(parent: Node, change: Change, at: datetime | float | None) -> Node:
    """Return a node that was not there: one that is started, or adopted."""
    name, wanted = change.name, change.wanted
    if wanted.adopted is None:
        child = start(
            wanted.component,
            parent=parent,
            name=name,
            args=wanted.args,
            inputs=wanted.options("in"),
            outputs=wanted.options("out"),
            job=wanted.job_options,
            run=wanted.init is True,
            at=at,
            instance=parent.instance,
        )
    else:
        child = _adopted(parent, change)
    for direction, ports in (("in", child.inputs), ("out", child.outputs)):
        for port, values in wanted.first_messages(direction).items():
            ports[port].write_many(values)
    return child


def _adopted(parent: Node, change: Change) -> Node:
    """Return the node that a spec names by its id, as a child now."""
    path, node = (
        f"nodes.{change.name}.init",
        find(int(change.wanted.init), instance=parent.instance),
    )
    if node is None:
        raise GraphError([Problem(path, f"there is no node {change.wanted.init}.")])
    try:
        become_parent(parent, node, change.name)
    except FamilyError as error:  # it is above the graph; or somebody was quicker
        raise GraphError([Problem(path, str(error))]) from error
    return _changed(node, change._replace(before=None))


def _changed(child: Node, change: Change) -> Node:
    """Return a child that stays, with the arguments, ports and jobs that it is to have."""
    spec = _spec_of(change.wanted.component, child.instance)
    if spec is not None:
        _change(locked_node(child), spec)
    else:
        _set_args(child, change.wanted)
    _follow(child, change)
    return child


def _set_args(child: Node, wanted: NodeSpec) -> None:
    """Let the runs of a child from now on be called with other arguments."""
    if is_same(wanted.args, child.args):
        return
    Node.objects.using(child.using).filter(pk=child.pk).update(args=list(wanted.args))
    lifecycle.run_row(child)


def _follow(child: Node, change: Change) -> None:
    """Let the ports and the jobs of a child be as a spec says that differs from the one before."""
    before = change.before or NodeSpec(change.wanted.component)
    if not is_same(before.job_options, change.wanted.job_options):
        creating.change_jobs(child, change.wanted.job_options)
    changed = {direction: _set_ports(child, before, change, direction) for direction in SIDES}
    if changed["in"]:
        lifecycle.run_row(child)  # it may have waited for a default


def _set_ports(child: Node, before: NodeSpec, change: Change, direction: str) -> bool:
    declared = find_component(child.instance, child.job_type.name)
    old = creating.merged(declared, direction, before.options(direction))
    new = creating.merged(declared, direction, change.wanted.options(direction))
    kept = change.joined.get((change.name, direction), set()) | _own_ports(child, direction)
    if ANY in new:
        new |= {name: new[ANY].renamed(name) for name in kept & set(old) - set(new)}
    if child.job_type.name == GRAPH and direction == "in":  # as where it is started
        if ANY not in change.wanted.options(direction):
            del new[ANY]
        elif ANY not in before.options(direction):
            creating.change_ports(child, direction, {}, {ANY: new[ANY]})
    return creating.change_ports(child, direction, old, new)


def _own_ports(child: Node, direction: str) -> set[str]:
    """Return the ports that a graph in a graph has by its own spec."""
    stored = child.graph if child.job_type.name == GRAPH else None
    return set(read_spec(stored).own_ports(direction)) if stored else set()


# Connections


def _connect(node: Node, nodes: Mapping[str, Node], gone: Sequence[Node], spec: Spec) -> None:
    """Add the connections that are missing, and remove those that the spec has not.

    What is `gone` is no more connected with what stays, so that nothing lies there unread, and
    nothing of it comes.
    """
    pairs = list(spec.connections())
    ports = {end: _port(nodes[end[0]], *end[1:]) for end in dict.fromkeys(chain(*pairs))}
    rows = {end: port._known_id for end, port in ports.items()}
    ids = [child.pk for child in nodes.values()]
    there = connections_of(ids, [child.pk for child in gone], node.using)
    missing: dict[Port, list[Port]] = {}
    for source, target in pairs:
        if there.pop((rows[source], rows[target]), None) is None:
            missing.setdefault(ports[source], []).append(ports[target])
    if there:
        extra = Connection.objects.using(node.using).filter(ids_in("pk", list(there.values())))
        disconnect([source for source, _target in there], extra, node.using)
    for port, targets in missing.items():
        _join(port, targets)


def _join(source: Port, targets: Sequence[Port]) -> None:
    try:
        source.connect(*targets)
    except FamilyError as error:  # an adopted node leads back by a connection of its own
        raise GraphError([Problem("edges", str(error))]) from error


def _port(node: Node, direction: str, name: str) -> Port:
    """Return a port of a node; one that a new release of its component declares is made."""
    try:
        row = find_row(node, direction, name)
    except UnknownPortError:
        options = declared_port(node, direction, name)
        if options is None:
            raise
        row = creating.add_port(node, direction, options)
    return Port(node, direction, name, row.pk)
