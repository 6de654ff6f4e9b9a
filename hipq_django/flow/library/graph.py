"""The component of graphs: its node's children do the work, and it tells how they are."""

from __future__ import annotations

from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import AnyOut
from hipq_django.flow.declaring import component
from hipq_django.flow.values import Rest

GRAPH = "flow.graph"
SPEC = "flow.spec"
"""The key of the state where the spec of a graph is kept."""


@component(GRAPH, wake_parent="changes", runs_per_minute=6_000)
class GraphComponent(Component):
    """Nodes and connections that were given as data."""

    any_out = AnyOut()

    def perform(self) -> None:
        """Be failed if a child is, suspended if one is, else completed."""
        rests = self._run.rests_of_children()
        for rest in (Rest.FAILED, Rest.SUSPENDED):
            if rest in rests:
                self._run.rest = rest
                return
