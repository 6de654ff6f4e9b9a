"""What the code and the database of an instance know, for the check of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hipq_django.conf.instances import get_instance
from hipq_django.flow.creating import checked_job
from hipq_django.flow.declared_ports import PortOptions
from hipq_django.flow.declaring import ComponentDeclaration, all_components, find_component
from hipq_django.flow.graphs.check import problems_of
from hipq_django.flow.graphs.facts import ComponentFacts, Facts, Standing
from hipq_django.flow.graphs.named import declared_graphs, graph_named, stored_names
from hipq_django.flow.graphs.problem import Problem, errors_of
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import STAGE
from hipq_django.job_types.registry import get_all_declared, get_declared, names_of


def facts_of(instance: str, graph: Node | None) -> Facts:
    """Return what there is; `graph` is the one that is to be as the spec says."""
    return _Knowledge(instance).facts(graph)


@dataclass
class _Knowledge:
    instance: str
    inside: tuple[str, ...] = ()
    """The graphs that are being looked at, from the outermost."""
    _known: dict[str, ComponentFacts | None] = field(default_factory=dict)

    def facts(self, graph: Node | None = None) -> Facts:
        settings = flow_settings(self.instance)
        return Facts(
            names=self.names,
            find=self.find,
            jobs=_names_of_jobs(self.instance),
            names_of_job=partial(names_of, self.instance),
            check_job=lambda options: checked_job(options, self.instance),
            find_node=self._standing,
            children={} if graph is None else _children_of(graph),
            max_levels=settings.max_depth,
            max_message_bytes=settings.max_message_bytes,
        )

    def names(self) -> list[str]:
        """Return what components and graphs are called."""
        components = [declared.name for declared in all_components(self.instance)]
        graphs = declared_graphs(self.instance)
        return [*components, *graphs, *stored_names(self.instance)]

    def find(self, name: str) -> ComponentFacts | None:
        """Return what is known of a component or graph of this name."""
        if name not in self._known:
            self._known[name] = self._component(name) or self._graph(name)
        return self._known[name]

    def _component(self, name: str) -> ComponentFacts | None:
        declared = get_declared(self.instance, name)
        if not isinstance(declared, ComponentDeclaration):
            return None
        check_args = declared.check_args
        return ComponentFacts(declared.inputs, declared.outputs, check_args, declared.queue)

    def _graph(self, name: str) -> ComponentFacts | None:
        given = graph_named(self.instance, name)
        if given is None:
            return None
        spec = given if isinstance(given, Mapping) else {}
        of_graphs = find_component(self.instance, GRAPH)
        return ComponentFacts(
            _plain(spec.get("inputs")),
            _plain(spec.get("outputs")),
            of_graphs.check_args,
            of_graphs.queue,
            is_graph=True,
            **self._within(name, given),
        )

    def _within(self, name: str, spec: Any) -> dict[str, Any]:
        """Return the problems of a graph, and how deep and large it is."""
        path = (*self.inside, name)
        if name in self.inside:
            ring = " → ".join(path[path.index(name) :])
            return {"problems": [Problem("nodes", f"graphs contain each other: {ring}.")]}
        inner = _Knowledge(self.instance, path)
        problems = errors_of(problems_of(spec, inner.facts()))
        return {"problems": problems, **({} if problems else inner.extent(spec))}

    def extent(self, spec: Mapping[str, Any]) -> dict[str, int]:
        """Return how deep the tree of a spec without problems is, and how many nodes it has."""
        names = [node.get("component", STAGE) for node in spec["nodes"].values()]
        found = [known for name in names if (known := self.find(name))]
        return {
            "levels": 1 + max((known.levels for known in found), default=0),
            "nodes": 1 + sum(known.nodes for known in found),
        }

    def _standing(self, pk: int) -> Standing | None:
        rows = Node.objects.using(get_instance(self.instance).database)
        found = rows.filter(pk=pk, instance=self.instance) if 0 < pk < 1 << 63 else rows.none()
        row = found.select_related("job_type", "queue").first()
        return None if row is None else _standing_of(row)


def _names_of_jobs(instance: str) -> list[str]:
    declared = get_all_declared(instance)
    jobs = [each for each in declared if not isinstance(each, ComponentDeclaration)]
    return [*(job.name for job in jobs), *(alias for job in jobs for alias in job.aliases)]


def _plain(ports: Any) -> dict[str, PortOptions]:
    return {name: PortOptions(name) for name in ports} if isinstance(ports, Mapping) else {}


def _children_of(graph: Node) -> dict[str, Standing]:
    rows = Node.objects.using(graph.using).filter(parent=graph.pk)
    return {row.name: _standing_of(row) for row in rows.select_related("job_type", "queue")}


def _standing_of(row: Node) -> Standing:
    component = row.job_type.name
    declared = get_declared(row.instance, component)
    usual = row.queue.name if declared is None else declared.queue
    return Standing(
        row.pk,
        component,
        row.job_options.get("queue") or usual,
        list(row.args),
        row.parent_id,
        names_of(row.instance, component)[1:],
    )
