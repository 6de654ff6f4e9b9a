"""What the check of a spec has to know of the code and of the nodes that are there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipq_django.flow.declared_ports import ANY, PortOptions
from hipq_django.flow.graphs.problem import Problem


def _takes_all(args: Sequence[Any]) -> None:
    """Stand for a component that can be called with any arguments."""


@dataclass(frozen=True)
class ComponentFacts:
    """A component, or a graph that has a name."""

    inputs: Mapping[str, PortOptions]
    outputs: Mapping[str, PortOptions]
    check_args: Callable[[Sequence[Any]], None] = _takes_all
    queue: str = "default"
    problems: Sequence[Problem] = ()
    """What is wrong with the graph itself."""
    is_graph: bool = False
    levels: int = 1
    """How deep the tree of its nodes is."""
    nodes: int = 1
    """How many nodes it has, with its own."""

    def ports(self, direction: str) -> Mapping[str, PortOptions]:
        """Return the ports of one side."""
        return self.inputs if direction == "in" else self.outputs

    def has(self, direction: str, port: str) -> bool:
        """Return whether there is such a port, or one that stands for all."""
        ports = self.ports(direction)
        return port in ports or ANY in ports


@dataclass(frozen=True)
class Standing:
    """A node that is there."""

    id: int
    component: str
    queue: str
    args: Sequence[Any]
    parent: int | None = None
    other_names: Collection[str] = ()
    """By which the code knows its component, too: former ones, or the present one."""

    def is_of(self, component: str) -> bool:
        """Return whether this is a name of its component."""
        return component == self.component or component in self.other_names


def _only_itself(name: str) -> Sequence[str]:
    return (name,)


@dataclass(frozen=True)
class Facts:
    """What there is."""

    names: Callable[[], Collection[str]]
    """Returns what components and graphs are called."""
    find: Callable[[str], ComponentFacts | None]
    find_node: Callable[[int], Standing | None]
    jobs: Collection[str] = ()
    """The names of declared job types, the former ones included."""
    check_job: Callable[[Mapping[str, Any]], object] = dict
    """Raises an error unless these can be the options of a job."""
    names_of_job: Callable[[str], Sequence[str]] = _only_itself
    """Returns all names of the job type that has this one."""
    children: Mapping[str, Standing] = field(default_factory=dict)
    """The nodes that the graph has, if it is there."""
    max_levels: int = 20
    max_message_bytes: int | None = None
