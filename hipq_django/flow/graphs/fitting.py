"""Whether what a spec says of its nodes fits their components, and the nodes that are there. Pure.

The form of the spec is checked elsewhere: whatever has not the right form is passed over here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hipq_django.exceptions import HipqError, nearest_name
from hipq_django.flow.declared_ports import ANY, PortOptions, checked_message, port_options
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.facts import ComponentFacts, Facts
from hipq_django.flow.graphs.problem import WARNING, Problem, short
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.values import DEFAULT_LIMIT, SIDES, STAGE, is_same

ROUNDED = ("int", "float")
"""A port of the second type takes what one of the first gives."""


class Place:
    """A node of the spec whose component is known."""

    def __init__(self, name: str, given: Mapping[str, Any], known: ComponentFacts) -> None:
        self.name = name
        self.given = given
        self.known = known
        self._ports = {direction: self._merged(direction) for direction in SIDES}

    def _merged(self, direction: str) -> dict[str, PortOptions]:
        given = self.given.get(SIDES[direction])
        own = {n: _options(n, g) for n, g in given.items()} if isinstance(given, dict) else {}
        return {**self.known.ports(direction), **{n: port for n, port in own.items() if port}}

    @property
    def path(self) -> str:
        """Where it stands in the spec."""
        return f"nodes.{self.name}"

    @property
    def component(self) -> str:
        """The name of its component, or graph."""
        return STAGE if "jobs" in self.given else str(self.given["component"])

    @property
    def args(self) -> list[Any]:
        """The arguments of its node."""
        if "jobs" not in self.given:
            args = self.given.get("args")
            return args if isinstance(args, list) else []
        return [self.given["jobs"], self.given.get("key"), self.given.get("limit", DEFAULT_LIMIT)]

    def ports(self, direction: str) -> Mapping[str, PortOptions]:
        """Return its ports; those that are given replace declared ones as a whole."""
        return self._ports[direction]

    def port(self, direction: str, name: str) -> PortOptions | None:
        """Return a port, or the one that stands for it."""
        ports = self.ports(direction)
        return ports.get(name) or ports.get(ANY)

    def first(self, direction: str) -> Iterator[tuple[str, list[Any]]]:
        """Yield the names of ports with their first messages."""
        given = self.given.get(SIDES[direction])
        for name, options in given.items() if isinstance(given, dict) else ():
            values = options.get("init") if isinstance(options, dict) else None
            if isinstance(values, list):
                yield name, values


def place_of(name: str, given: Any, facts: Facts) -> Place | None:
    """Return a node of the spec, or None if its component is not known."""
    if not isinstance(given, dict):
        return None
    component = STAGE if "jobs" in given else given.get("component")
    known = facts.find(component) if isinstance(component, str) else None
    return None if known is None else Place(name, given, known)


def _options(name: str, given: Any) -> PortOptions | None:
    try:
        return port_options(name, given)
    except (FlowError, TypeError):
        return None


def problems_of_node(place: Place, facts: Facts) -> Iterator[Problem]:
    """Yield what does not fit at one node."""
    yield from _of_graph(place, facts)
    yield from _of_args(place, facts)
    yield from _of_jobs(place, facts)
    yield from _of_standing(place, facts)
    for direction in SIDES:
        yield from _of_first_messages(place, direction, facts)


def _of_graph(place: Place, facts: Facts) -> Iterator[Problem]:
    """Yield what is wrong with the graph that a node is."""
    path = f"{place.path}.component"
    for problem in place.known.problems:
        yield Problem(path, f"in graph {place.component!r}: {problem}")
    levels = 1 + place.known.levels
    if levels > facts.max_levels:
        hint = "(setting FLOW: MAX_DEPTH)"
        text = f"the tree would be {levels} levels deep, at most {facts.max_levels} are allowed."
        yield Problem(path, text, hint)


def _of_args(place: Place, facts: Facts) -> Iterator[Problem]:
    args = place.given.get("args", [])
    if "jobs" in place.given or not isinstance(args, list):
        return
    path = f"{place.path}.args"
    try:
        place.known.check_args(args)
    except HipqError as error:
        yield Problem(path, str(error))
        return
    if place.component == STAGE and args[0] not in facts.jobs:
        near = nearest_name(args[0], facts.jobs).strip(" ;.,")
        yield Problem(path, f"{short(args[0])} is no declared job type.", f"({near})")


def _of_jobs(place: Place, facts: Facts) -> Iterator[Problem]:
    job, queue = place.given.get("job"), place.given.get("queue")
    said = [(f"job.{o}", o, value) for o, value in job.items()] if isinstance(job, dict) else []
    if isinstance(queue, str):
        said.append(("queue", "queue", queue))
    for path, option, value in said:
        try:
            facts.check_job({option: value})
        except (HipqError, TypeError, ValueError) as error:
            yield Problem(f"{place.path}.{path}", str(error))


def _of_first_messages(place: Place, direction: str, facts: Facts) -> Iterator[Problem]:
    for name, values in place.first(direction):
        path = f"{place.path}.{SIDES[direction]}.{name}.init"
        port = place.port(direction, name)
        if name == ANY and values:
            yield Problem(path, "* stands for other ports.", "Name the port that gets them.")
            continue
        for number, value in enumerate(values):
            if port and (text := _refusal(value, port, facts)):
                yield Problem(f"{path}[{number}]", text)


def _refusal(value: Any, port: PortOptions, facts: Facts) -> str:
    try:
        checked_message(value, port, facts.max_message_bytes)
    except FlowError as error:
        return str(error)
    return ""


# Nodes that are there


def _of_standing(place: Place, facts: Facts) -> Iterator[Problem]:
    """Yield why a node that is there cannot be the node of the spec."""
    child, init = facts.children.get(place.name), place.given.get("init")
    if child is not None and not child.is_of(_kind_of(place)):
        hint = "Give the new one another name: a node keeps its component."
        text = f"node {child.id} is {child.component!r}."
        yield Problem(f"{place.path}.component", text, hint)
    if isinstance(init, bool) or not isinstance(init, int):
        return
    path = f"{place.path}.init"
    if child is not None and child.id != init:
        yield Problem(path, f"the child of this name is node {child.id}.")
    elif child is None:
        yield from _of_adoption(place, path, init, facts)


def _kind_of(place: Place) -> str:
    return GRAPH if place.known.is_graph else place.component


def _of_adoption(place: Place, path: str, init: int, facts: Facts) -> Iterator[Problem]:
    node = facts.find_node(init)
    if node is None:
        yield Problem(path, f"there is no node {init}.")
        return
    queue = place.given.get("queue") or place.known.queue
    kind = _kind_of(place)
    wanted = {
        "component": node.component if node.is_of(kind) else kind,
        "args": node.args if _is_same_call(kind, node.args, place.args, facts) else place.args,
        "queue": queue,
    }
    hint = "It needs the same component, arguments and queue, and no parent."
    for key, value in wanted.items():
        if not is_same(has := getattr(node, key), value):
            differs = f"its {key} is {short(has)}, not {short(value)}"
            if key == "args":  # which may be secrets
                differs = "its args differ"
            text = f"node {init} does not fit: {differs}."
            yield Problem(path, text, hint)
    if node.parent is not None:
        yield Problem(path, f"node {init} does not fit: it has a parent, node {node.parent}.", hint)


def _is_same_call(component: str, has: Sequence[Any], wanted: Sequence[Any], facts: Facts) -> bool:
    """Whether a component is called with the same; a stage also by another name of its job type."""
    if component != STAGE:
        return is_same(has, wanted)
    job_type, *options = _args_of_stage(has)
    other, *others = _args_of_stage(wanted)
    return is_same(options, others) and other in facts.names_of_job(job_type)


def _args_of_stage(args: Sequence[Any]) -> list[Any]:
    """Return job type, key and limit; the last ones may have been left out."""
    return [*args, *[None, None, DEFAULT_LIMIT][len(args) :]]


# What joins nodes


def type_problem(source: PortOptions | None, target: PortOptions | None) -> str:
    """Return why one port does not take what another gives; '' if it may."""
    if source is None or target is None or not (source.type and target.type):
        return ""
    if source.type == target.type or (source.type, target.type) == ROUNDED:
        return ""
    return f"{source.name!r} gives {source.type}, and {target.name!r} takes {target.type}."


def warnings_of_node(place: Place, joined: set[str]) -> Iterator[Problem]:
    """Yield the in-ports that can never have anything: no edge leads there, nothing is given."""
    if type(place.given.get("init")) is int:  # others may write to a node that is there
        return
    first = {name for name, values in place.first("in") if values}
    for name, port in place.ports("in").items():
        has_something = port.has_default or port.channels or name in joined | first
        if name != ANY and not has_something:
            hint = "Add an edge or a default, unless it is written to from outside."
            path = f"{place.path}.inputs.{name}"
            yield Problem(path, "nothing leads to it, and it has no default.", hint, WARNING)
