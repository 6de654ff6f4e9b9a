"""What is wrong with the spec of a graph: all of it at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

from hipq_django.domain.serialization import to_json
from hipq_django.domain.validation import is_storable
from hipq_django.exceptions import nearest_name
from hipq_django.flow.declared_ports import PortOptions, checked_port_name, port_options
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.facts import Facts
from hipq_django.flow.graphs.fitting import (
    Place,
    place_of,
    problems_of_node,
    type_problem,
    warnings_of_node,
)
from hipq_django.flow.graphs.problem import Problem, short
from hipq_django.flow.graphs.spec import (
    GRAPH_KEYS,
    MAX_NODES,
    NODE_KEYS,
    End,
    read_edge,
    read_end,
)
from hipq_django.flow.values import MAX_LIMIT

MAX_PROBLEMS = 100


def problems_of(spec: object, facts: Facts) -> list[Problem]:
    """Return all that is wrong with a spec, whatever it is, and then what looks wrong."""
    try:
        plain = to_json(spec)
    except ValueError as error:
        return [Problem("spec", f"it is not JSON: {error}.")]
    check = _Check(plain, facts)
    return list(islice(chain(check.problems(), check.warnings()), MAX_PROBLEMS))


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "args": ((list,), "a list"),
    "job": ((dict,), "an object"),
    "queue": ((str, type(None)), "the name of a queue"),
    "init": ((bool, int), "true, or the id of a node"),
    "key": ((str, type(None)), "the field that is the key of the job, or null"),
}


class _Check:
    def __init__(self, spec: Any, facts: Facts) -> None:
        self._spec = spec
        self._facts = facts
        nodes = spec.get("nodes") if isinstance(spec, dict) else None
        self._nodes: dict[str, Any] = nodes if isinstance(nodes, dict) else {}
        self._places: dict[str, Place | None] = {}
        self._joined: dict[str, set[str]] = {}
        """The in-ports to which something leads, by node."""

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong."""
        if not isinstance(self._spec, dict):
            yield Problem("spec", f"it is {short(self._spec)}, not an object.")
            return
        yield from _unknown_keys("spec", self._spec, GRAPH_KEYS)
        if not isinstance(self._spec.get("nodes"), dict):
            yield Problem("nodes", "there is no object of nodes.", 'Give {"name": {…}}.')
        if self._spec.get("removed", "keep") != "keep":
            yield Problem("removed", f"it is {short(self._spec['removed'])}.", "Give 'keep'.")
        places = map(self._place, self._nodes)
        count = sum(1 if place is None else place.known.nodes for place in places)
        if count > MAX_NODES:
            text = f"there are {count:,} with those of graphs in it, at most {MAX_NODES:,} may be."
            yield Problem("nodes", text)
            return
        for name, node in self._nodes.items():
            yield from self._of_node(name, node)
        yield from self._of_adopted()
        yield from self._of_edges()
        yield from self._of_side("inputs", "in")
        yield from self._of_side("outputs", "out")

    def warnings(self) -> Iterator[Problem]:
        """Yield what looks wrong, of a spec that has the right form."""
        if not isinstance(self._spec, dict):
            return
        for name in self._nodes:
            if place := self._place(name):
                yield from warnings_of_node(place, self._joined.get(name, set()))

    # Nodes

    def _of_node(self, name: str, node: Any) -> Iterator[Problem]:
        path = f"nodes.{name}"
        if not _is_node_name(name):
            hint = "Use 1 to 200 characters, no '->', and no space at either end."
            yield Problem(path, f"the name {short(name)} cannot be used.", hint)
        if not isinstance(node, dict):
            yield Problem(path, f"it is {short(node)}, not an object.")
            return
        yield from _unknown_keys(path, node, NODE_KEYS)
        yield from self._of_stage(path, node) if "jobs" in node else self._of_component(path, node)
        yield from _of_kinds(path, node)
        for side in ("inputs", "outputs"):
            yield from _of_options(f"{path}.{side}", node.get(side, {}))
        if place := self._place(name):
            yield from problems_of_node(place, self._facts)

    def _of_adopted(self) -> Iterator[Problem]:
        """Yield the ids that two nodes name."""
        seen: dict[int, str] = {}
        for name, node in self._nodes.items():
            init = node.get("init") if isinstance(node, dict) else None
            if isinstance(init, bool) or not isinstance(init, int):
                continue
            if init in seen:
                text = f"node {init} is {seen[init]!r} already."
                yield Problem(f"nodes.{name}.init", text)
            seen.setdefault(init, name)

    def _of_component(self, path: str, node: dict[str, Any]) -> Iterator[Problem]:
        name = node.get("component")
        if not isinstance(name, str):
            hint = 'Give "component": the name of a component.'
            yield Problem(f"{path}.component", f"it is {short(name)}, not a name.", hint)
        elif self._facts.find(name) is None:
            hint = nearest_name(name, self._facts.names()).strip(" ;.,")
            yield Problem(f"{path}.component", f"{name!r} is not declared.", f"({hint})")

    def _of_stage(self, path: str, node: dict[str, Any]) -> Iterator[Problem]:
        name, limit = node["jobs"], node.get("limit", 1)
        for key in ("component", "args"):
            if key in node:
                yield Problem(f"{path}.{key}", f"a node of jobs has no {key}.", "Remove it.")
        if not isinstance(name, str) or name not in self._facts.jobs:
            hint = nearest_name(str(name), self._facts.jobs).strip(" ;.,")
            yield Problem(f"{path}.jobs", f"{short(name)} is no declared job type.", f"({hint})")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
            hint = f"Give a number from 1 to {MAX_LIMIT:,}."
            yield Problem(f"{path}.limit", f"it is {short(limit)}.", hint)

    # Edges

    def _of_edges(self) -> Iterator[Problem]:
        edges = self._spec.get("edges", [])
        if not isinstance(edges, list):
            yield Problem("edges", f"it is {short(edges)}, not a list.")
            return
        seen = set()
        for number, text in enumerate(edges):
            path = f"edges[{number}]"
            if not isinstance(text, str) or text.count("->") != 1:
                hint = 'Write "node.port -> node.port".'
                yield Problem(path, f"it is {short(text)}.", hint)
                continue
            edge = read_edge(text)
            yield from self._of_end(path, edge.source, "out")
            yield from self._of_end(path, edge.target, "in")
            if text := type_problem(self._port(edge.source, "out"), self._port(edge.target, "in")):
                yield Problem(path, text)
            if edge in seen:
                yield Problem(path, f"{edge} is there twice.")
            seen.add(edge)

    def _of_end(self, path: str, end: End, direction: str) -> Iterator[Problem]:
        if end.node not in self._nodes:
            near = nearest_name(end.node, self._nodes).strip(" ;.,") if self._nodes else ""
            yield Problem(path, f"there is no node {end.node!r}.", f"({near})" if near else "")
            return
        if not _is_port_name(end.port):
            yield Problem(path, f"{end.port!r} cannot be the name of a port.")
            return
        if direction == "in":
            self._joined.setdefault(end.node, set()).add(end.port)
        place = self._place(end.node)
        if place is None or place.port(direction, end.port) is not None:
            return
        other = "out" if direction == "in" else "in"
        hint = f"It is an {other}-port." if place.known.has(other, end.port) else ""
        yield Problem(path, f"node {end.node!r} has no {direction}-port {end.port!r}.", hint)

    def _place(self, name: str) -> Place | None:
        """Return a node whose component is known."""
        if name not in self._places:
            given = self._nodes.get(name)
            self._places[name] = place_of(name, given, self._facts)
        return self._places[name]

    def _port(self, end: End, direction: str) -> PortOptions | None:
        place = self._place(end.node)
        return None if place is None else place.port(direction, end.port)

    # The graph's own ports

    def _of_side(self, side: str, direction: str) -> Iterator[Problem]:
        ports = self._spec.get(side, {})
        if not isinstance(ports, dict):
            yield Problem(side, f"it is {short(ports)}, not an object.")
            return
        for name, given in ports.items():
            path = f"{side}.{name}"
            if not _is_port_name(name):
                yield Problem(path, f"{short(name)} cannot be the name of a port.")
            yield from self._of_ends(path, given, direction)

    def _of_ends(self, path: str, given: Any, direction: str) -> Iterator[Problem]:
        ends = [given] if isinstance(given, str) else given
        if not isinstance(ends, list) or not all(isinstance(text, str) for text in ends):
            yield Problem(path, f"it is {short(given)}.", 'Give "node.port", or a list.')
            return
        for text in ends:
            yield from self._of_end(path, read_end(text), direction)
        if len(set(map(read_end, ends))) < len(ends):
            yield Problem(path, "an end is there twice.")


def _of_kinds(path: str, node: dict[str, Any]) -> Iterator[Problem]:
    for key, (kinds, says) in _KINDS.items():
        if key in node and not isinstance(node[key], kinds):
            yield Problem(f"{path}.{key}", f"it is {short(node[key])}.", f"Give {says}.")


def _of_options(path: str, ports: Any) -> Iterator[Problem]:
    if not isinstance(ports, dict):
        yield Problem(path, f"it is {short(ports)}, not an object.")
        return
    for name, given in ports.items():
        if not isinstance(given, dict):
            yield Problem(f"{path}.{name}", f"it is {short(given)}, not an object.")
            continue
        if not isinstance(given.get("init", []), list):
            yield Problem(f"{path}.{name}.init", f"it is {short(given['init'])}, not a list.")
        try:
            port_options(name, given)
        except (FlowError, TypeError) as error:
            yield Problem(f"{path}.{name}", str(error))


def _unknown_keys(path: str, given: dict[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    for key in given:
        if key not in known:
            hint = nearest_name(key, known).strip(" ;.,")
            yield Problem(path, f"it has no key {key!r}.", f"({hint})")


def _is_node_name(name: str) -> bool:
    is_bare = "->" not in name and name == name.strip()
    return 0 < len(name) <= 200 and is_bare and is_storable(name)


def _is_port_name(name: str) -> bool:
    try:
        return bool(checked_port_name(name))
    except FlowError:
        return False
