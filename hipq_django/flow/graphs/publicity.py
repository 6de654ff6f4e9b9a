"""What may be named from outside: by a request, or in a form of the admin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hipq_django.flow.declaring import find_component
from hipq_django.flow.exceptions import UnknownComponentError
from hipq_django.flow.graphs.problem import Problem
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import STAGE
from hipq_django.job_types.registry import names_of


def check_public(instance: str, component_or_spec: Any) -> list[Problem]:
    """Return what of a component, or of the spec of a graph, must not be named from outside.

    Only components that are declared with `public=True` may be, and as stages the job types of the
    setting PUBLIC_JOBS. What nobody declares is not public either. What else is wrong with a spec
    `check` says.
    """
    if not isinstance(component_or_spec, Mapping):
        return list(_of_component(instance, "component", component_or_spec))
    nodes = component_or_spec.get("nodes")
    named = nodes.items() if isinstance(nodes, Mapping) else ()
    return [problem for name, node in named for problem in _of_node(instance, name, node)]


def _of_node(instance: str, name: str, node: Any) -> Iterator[Problem]:
    if not isinstance(node, Mapping):
        return
    if "component" in node:
        yield from _of_component(instance, f"nodes.{name}.component", node["component"])
    if "jobs" in node and not _is_public_job(instance, node["jobs"]):
        hint = "Add it to FLOW: PUBLIC_JOBS, if anybody may have such jobs made."
        yield Problem(f"nodes.{name}.jobs", f"{node['jobs']!r:.100} is not public.", hint)


def _is_public_job(instance: str, given: Any) -> bool:
    """Return whether this is a name, present or former, of a job type of PUBLIC_JOBS."""
    if not isinstance(given, str):
        return False
    return not set(flow_settings(instance).public_jobs).isdisjoint(names_of(instance, given))


def _of_component(instance: str, path: str, given: Any) -> Iterator[Problem]:
    try:
        is_public = find_component(instance, given).public
    except UnknownComponentError:
        is_public = False
    if not is_public:
        hint = _HINTS.get(str(given), "Declare it with public=True, if anybody may start it.")
        yield Problem(path, f"{given!r:.100} is not public.", hint)


_HINTS = {
    STAGE: "Name the job type by the key 'jobs' of a node in a graph.",
    GRAPH: "Give the spec itself; inside of a spec, the nodes.",
}
"""What to do in place of naming a component that makes others, which may not be public."""
