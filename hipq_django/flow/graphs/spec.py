"""The spec of a graph: plain values, read from JSON that may be anything. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.utils.functional import cached_property

from hipq_django.domain.serialization import is_storable, to_json
from hipq_django.exceptions import nearest_name
from hipq_django.flow.declared_ports import checked_port_name, port_options
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.problem import Problem, short
from hipq_django.flow.values import DEFAULT_LIMIT, SIDES, STAGE

STAGE_KEYS = ("jobs", "key", "limit")
OTHER_KEYS = ("queue", "inputs", "outputs", "init", "job")
STAGE_NODE_KEYS = (*STAGE_KEYS, *OTHER_KEYS)
NODE_KEYS = ("component", "args", "jobs", *OTHER_KEYS)
GRAPH_KEYS = ("nodes", "edges", "inputs", "outputs", "removed")
MAX_NODES = 1_000


class End(NamedTuple):
    """A port of a node of the graph; the name of the graph itself is ''."""

    node: str
    direction: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}.{self.port}"


class Edge(NamedTuple):
    """A connection, and where the spec says it."""

    path: str
    source: End
    target: End

    @property
    def ends(self) -> tuple[End, End]:
        """Both ends."""
        return self.source, self.target


@dataclass(frozen=True)
class NodeSpec:
    """One node of a graph."""

    component: str
    queue: str | None = None
    args: Sequence[Any] = ()
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    init: bool | int = False
    """Whether it runs when it is created; or the id of the node that is adopted in its place."""
    job: Mapping[str, Any] = field(default_factory=dict)

    def options(self, direction: str) -> dict[str, dict[str, Any]]:
        """Return the options of the ports of one side, without first messages."""
        ports = self.inputs if direction == "in" else self.outputs
        return {n: {k: v for k, v in given.items() if k != "init"} for n, given in ports.items()}

    def first_messages(self, direction: str) -> dict[str, list[Any]]:
        """Return the first messages of the ports of one side."""
        ports = self.inputs if direction == "in" else self.outputs
        return {n: list(given["init"]) for n, given in ports.items() if given.get("init")}

    @property
    def job_options(self) -> dict[str, Any]:
        """What is said of the jobs of its runs."""
        return {**self.job, **({"queue": self.queue} if self.queue else {})}

    @property
    def adopted(self) -> int | None:
        """The id of the node that is adopted in its place, or None."""
        return None if isinstance(self.init, bool) else self.init


@dataclass(frozen=True)
class Spec:
    """The sound parts of what was given, and what is wrong with the form of the others."""

    given: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, NodeSpec] = field(default_factory=dict)
    edges: Sequence[Edge] = ()
    problems: Sequence[Problem] = ()

    @property
    def keeps_removed(self) -> bool:
        """Whether nodes that vanish from it live on."""
        return self.given.get("removed") == "keep"

    def own_ports(self, direction: str) -> list[str]:
        """Return the names of the graph's own ports of one side."""
        ports = self.given.get(SIDES[direction])
        return [name for name in ports if _is_port_name(name)] if isinstance(ports, dict) else []

    @cached_property
    def joined_ports(self) -> dict[tuple[str, str], set[str]]:
        """The ports that are joined with others, by node and direction."""
        joined: dict[tuple[str, str], set[str]] = {}
        for end in (end for edge in self.edges for end in edge.ends):
            joined.setdefault((end.node, end.direction), set()).add(end.port)
        return joined


def read_spec(given: object) -> Spec:
    """Return a spec, with all that is wrong with its form as `problems`."""
    try:
        plain = to_json(given)
    except ValueError as error:
        return Spec(problems=[Problem("spec", f"it is not JSON: {error}.")])
    if not isinstance(plain, dict):
        return Spec(problems=[Problem("spec", f"it is {short(plain)}, not an object.")])
    return _Reader(plain).spec()


class _Reader:
    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._problems: list[Problem] = []
        nodes = given.get("nodes")
        self._nodes: dict[str, Any] = nodes if isinstance(nodes, dict) else {}

    def spec(self) -> Spec:
        """Read all of it."""
        given = self._given
        self._problems += _unknown_keys("spec", given, GRAPH_KEYS)
        if not isinstance(given.get("nodes"), dict):
            self._wrong("nodes", "there is no object of nodes.", 'Give {"name": {…}}.')
        if given.get("removed", "keep") != "keep":
            self._wrong("removed", f"it is {short(given['removed'])}.", "Give 'keep'.")
        nodes = {}
        for name, node in self._nodes.items():
            wrong = list(_problems_of_node(f"nodes.{name}", name, node))
            self._problems += wrong
            if not wrong:
                nodes[name] = _node(node)
        edges = [*self._edges(), *self._own("inputs"), *self._own("outputs")]
        sound = [edge for edge in edges if all(end.node in {*nodes, ""} for end in edge.ends)]
        return Spec(given, nodes, sound, self._problems)

    def _wrong(self, path: str, message: str, hint: str = "") -> None:
        self._problems.append(Problem(path, message, hint))

    def _edges(self) -> Iterator[Edge]:
        edges = self._given.get("edges", [])
        if not isinstance(edges, list):
            self._wrong("edges", f"it is {short(edges)}, not a list.")
            return
        seen = set()
        for number, text in enumerate(edges):
            path = f"edges[{number}]"
            if not isinstance(text, str) or text.count("->") != 1:
                self._wrong(path, f"it is {short(text)}.", 'Write "node.port -> node.port".')
                continue
            source, target = text.split("->")
            ends = self._end(path, source, "out"), self._end(path, target, "in")
            if not (ends[0] and ends[1]):
                continue
            if ends in seen:
                self._wrong(path, f"{ends[0]} -> {ends[1]} is there twice.")
            seen.add(ends)
            yield Edge(path, ends[0], ends[1])

    def _own(self, side: str) -> Iterator[Edge]:
        """Yield the connections of the graph's own ports of one side."""
        ports, direction = self._given.get(side, {}), "in" if side == "inputs" else "out"
        if not isinstance(ports, dict):
            self._wrong(side, f"it is {short(ports)}, not an object.")
            return
        for name, given in ports.items():
            path, own = f"{side}.{name}", End("", direction, name)
            if not _is_port_name(name):
                self._wrong(path, f"{short(name)} cannot be the name of a port.")
                continue
            for end in self._ends(path, given, direction):
                yield Edge(path, own, end) if direction == "in" else Edge(path, end, own)

    def _ends(self, path: str, given: Any, direction: str) -> list[End]:
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self._wrong(path, f"it is {short(given)}.", 'Give "node.port", or a list.')
            return []
        ends = [end for text in texts if (end := self._end(path, text, direction))]
        if len(set(ends)) < len(ends):
            self._wrong(path, "an end is there twice.")
        return ends

    def _end(self, path: str, text: str, direction: str) -> End | None:
        """Return the end that `node.port` names; the port is what follows the last dot."""
        node, _, port = (part.strip() for part in text.rpartition("."))
        if node not in self._nodes:
            near = nearest_name(node, self._nodes).strip(" ;.,") if self._nodes else ""
            self._wrong(path, f"there is no node {node!r}.", f"({near})" if near else "")
        elif not _is_port_name(port):
            self._wrong(path, f"{port!r} cannot be the name of a port.")
        else:
            return End(node, direction, port)
        return None


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "component": ((str,), "the name of a component"),
    "args": ((list,), "a list"),
    "job": ((dict,), "an object"),
    "queue": ((str, type(None)), "the name of a queue"),
    "init": ((bool, int), "true, or the id of a node"),
}


def _problems_of_node(path: str, name: str, node: Any) -> Iterator[Problem]:
    if not _is_node_name(name):
        hint = "Use 1 to 200 characters, no '->', and no space at either end."
        yield Problem(path, f"the name {short(name)} cannot be used.", hint)
    if not isinstance(node, dict):
        yield Problem(path, f"it is {short(node)}, not an object.")
        return
    yield from _unknown_keys(path, node, STAGE_NODE_KEYS if "jobs" in node else NODE_KEYS)
    given = node if "jobs" in node else {"component": None, **node}
    for key, (kinds, says) in _KINDS.items():
        if key in given and not isinstance(given[key], kinds):
            yield Problem(f"{path}.{key}", f"it is {short(given[key])}.", f"Give {says}.")
    for side in SIDES.values():
        yield from _problems_of_ports(f"{path}.{side}", node.get(side, {}))


def _problems_of_ports(path: str, ports: Any) -> Iterator[Problem]:
    if not isinstance(ports, dict):
        yield Problem(path, f"it is {short(ports)}, not an object.")
        return
    for name, given in ports.items():
        try:
            port_options(name, given)
        except FlowError as error:
            yield Problem(f"{path}.{name}", str(error))
            continue
        if not isinstance(given.get("init", []), list):
            yield Problem(f"{path}.{name}.init", f"it is {short(given['init'])}, not a list.")


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


def _node(given: Mapping[str, Any]) -> NodeSpec:
    """Return a node; one of `jobs` is a stage with its arguments."""
    if "jobs" not in given:
        return NodeSpec(**given)
    values = {key: value for key, value in given.items() if key not in STAGE_KEYS}
    args = [given["jobs"], given.get("key"), given.get("limit", DEFAULT_LIMIT)]
    return NodeSpec(component=STAGE, args=args, **values)
