"""What is wrong with a spec: all that is refused where its graph is made, which is then undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from hipq_django.conf.rules import DEFAULT
from hipq_django.database.transactions import write_transaction
from hipq_django.flow import creating
from hipq_django.flow.declared_ports import ANY, PortOptions
from hipq_django.flow.declaring import ComponentDeclaration, find_component
from hipq_django.flow.exceptions import FlowError, GraphError, UnknownComponentError
from hipq_django.flow.graphs.applying import apply, spec_of, start_graph
from hipq_django.flow.graphs.children import kind_of, plain
from hipq_django.flow.graphs.named import graph_named
from hipq_django.flow.graphs.problem import WARNING, Problem, errors_of
from hipq_django.flow.graphs.publicity import refuse_private
from hipq_django.flow.graphs.spec import NodeSpec, Spec, read_spec
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.job_types.registry import get_declared


def check(
    spec: object, *, only_public: bool = False, instance: str = DEFAULT, node: Node | None = None
) -> list[Problem]:
    """Return all that is wrong with the spec of a graph, and what looks wrong as warnings.

    `only_public`: for one from outside. `node`: the graph that is to be as it says. The graph is
    made, or changed, in a transaction that is rolled back.
    """
    if node is not None:
        instance = node.instance
    using = creating.database_of(instance)
    found: list[Problem] = []
    try:
        with write_transaction(using), transaction.atomic(using=using):
            if node is not None:
                apply(node, spec, only_public=only_public)
            else:
                if only_public and isinstance(spec, Mapping):
                    refuse_private(instance, spec)
                start_graph(spec, instance)
            transaction.set_rollback(True, using=using)
    except GraphError as error:
        found = error.problems
    except FlowError as error:  # of messages that lie there, which would be moved
        found = [Problem("edges", str(error))]
    return [*found, *_warnings(read_spec(spec), instance)]


acheck = sync_to_async(check)


def checked_spec(spec: object, **options: Any) -> None:
    """Raise `GraphError` with all problems of a spec. Options are those of `check`."""
    if problems := errors_of(check(spec, **options)):
        raise GraphError(problems)


def checked_component(component: Any, instance: str) -> Any:
    """Return what a run starts when it ends, as JSON: the name of a component or graph, or a spec.

    Raise `UnknownComponentError`, or `GraphError`; other refusals come when it is started.
    """
    spec = spec_of(component, instance)
    if spec is None:
        return find_component(instance, component).name
    checked = checked_form(spec, instance)
    return component if isinstance(component, str) else checked


def checked_form(given: object, instance: str) -> Mapping[str, Any]:
    """Return a spec as JSON; raise `GraphError` if its form, or the name of a component, is wrong.

    A run asks this, which makes the graph only when it ends.
    """
    spec = read_spec(given)
    problems = list(spec.problems)
    for name, wanted in spec.nodes.items():
        try:
            kind_of(wanted, instance)
        except UnknownComponentError as error:
            problems.append(Problem(f"nodes.{name}.component", str(error)))
    if problems:
        raise GraphError(problems)
    return spec.given


def _warnings(spec: Spec, instance: str) -> Iterator[Problem]:
    """Yield the in-ports that can never have anything: no edge leads there, nothing is given."""
    for name, wanted in spec.nodes.items():
        if wanted.adopted is not None:  # others may write to a node that is there
            continue
        filled = spec.joined_ports.get((name, "in"), set()) | wanted.first_messages("in").keys()
        for port in _ports_wanted(wanted, instance):
            has_something = port.has_default or port.channels or port.name in filled
            if port.name != ANY and not has_something:
                hint = "Add an edge or a default, unless it is written to from outside."
                path = f"nodes.{name}.inputs.{port.name}"
                yield Problem(path, "nothing leads to it, and it has no default.", hint, WARNING)


def _ports_wanted(wanted: NodeSpec, instance: str) -> Iterable[PortOptions]:
    """Return the in-ports that a node of a spec has; none of an unknown component."""
    graph = graph_named(instance, wanted.component)
    declared = get_declared(instance, wanted.component if graph is None else GRAPH)
    if not isinstance(declared, ComponentDeclaration):
        return []
    own = {} if graph is None else plain(read_spec(graph).own_ports("in"))
    return (own | creating.merged(declared, "in", wanted.options("in"))).values()
