"""The spec of a graph: plain values, read from JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hipq_django.flow.values import DEFAULT_LIMIT, STAGE

STAGE_KEYS = ("jobs", "key", "limit")
NODE_KEYS = ("component", *STAGE_KEYS, "queue", "args", "inputs", "outputs", "init", "job")
GRAPH_KEYS = ("nodes", "edges", "inputs", "outputs", "removed")
MAX_NODES = 1_000


class End(NamedTuple):
    """A port of a node of the graph."""

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}.{self.port}"


class Edge(NamedTuple):
    """A connection from an out-port to an in-port."""

    source: End
    target: End

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


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
    """A graph, which was checked."""

    nodes: Mapping[str, NodeSpec]
    edges: Sequence[Edge]
    inputs: Mapping[str, Sequence[End]]
    outputs: Mapping[str, Sequence[End]]
    keeps_removed: bool

    def own_ports(self, direction: str) -> Mapping[str, Sequence[End]]:
        """Return the graph's own ports of one side, with the ends that they are joined with."""
        return self.inputs if direction == "in" else self.outputs

    def joined_ports(self) -> dict[tuple[str, str], set[str]]:
        """Return the ports that are joined with others, by node and direction."""
        joined: dict[tuple[str, str], set[str]] = {}
        for pair in self.connections():
            for node, direction, port in pair:
                joined.setdefault((node, direction), set()).add(port)
        return joined

    def connections(self) -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
        """Yield source and target of each connection, as node, direction and port.

        The name of the graph's own node is ''.
        """
        for edge in self.edges:
            yield (edge.source.node, "out", edge.source.port), (
                edge.target.node, "in", edge.target.port,
            )  # fmt: skip
        for port, ends in self.inputs.items():
            for end in ends:
                yield ("", "in", port), (end.node, "in", end.port)
        for port, ends in self.outputs.items():
            for end in ends:
                yield (end.node, "out", end.port), ("", "out", port)


def read_end(text: str) -> End:
    """Return the end that a text `node.port` names; the port is what follows the last dot."""
    node, _, port = text.rpartition(".")
    return End(node.strip(), port.strip())


def read_edge(text: str) -> Edge:
    """Return the edge that a text `node.port -> node.port` says."""
    source, _, target = text.partition("->")
    return Edge(read_end(source), read_end(target))


def read_spec(spec: Mapping[str, Any]) -> Spec:
    """Return a spec in which no problem was found."""
    return Spec(
        {name: _read_node(given) for name, given in spec["nodes"].items()},
        [read_edge(text) for text in spec.get("edges", ())],
        {name: _ends(given) for name, given in spec.get("inputs", {}).items()},
        {name: _ends(given) for name, given in spec.get("outputs", {}).items()},
        spec.get("removed") == "keep",
    )


def _read_node(given: Mapping[str, Any]) -> NodeSpec:
    """Return a node; one of `jobs` is a stage with its arguments."""
    if "jobs" not in given:
        return NodeSpec(**given)
    values = {key: value for key, value in given.items() if key not in STAGE_KEYS}
    args = [given["jobs"], given.get("key"), given.get("limit", DEFAULT_LIMIT)]
    return NodeSpec(component=STAGE, args=args, **values)


def _ends(given: str | Sequence[str]) -> list[End]:
    return [read_end(text) for text in ([given] if isinstance(given, str) else given)]
