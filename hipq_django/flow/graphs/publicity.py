"""What may be said from outside: by a request, or in a form of the admin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hipq_django.flow.declared_ports import is_own_channel
from hipq_django.flow.declaring import find_component
from hipq_django.flow.exceptions import GraphError, UnknownComponentError
from hipq_django.flow.graphs.problem import MAX_PROBLEMS, Problem
from hipq_django.flow.graphs.spec import read_spec
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import STAGE, is_same
from hipq_django.job_types.registry import names_of


def check_public(instance: str, component_or_spec: Any) -> list[Problem]:
    """Return what of a component, or of the spec of a graph, must not be named from outside.

    Only components that are declared with `public=True` may be, and as stages the job types of the
    setting PUBLIC_JOBS. What nobody declares is not public either. What else is wrong with a spec
    `check` says.
    """
    if not isinstance(component_or_spec, Mapping):
        return list(_of_component(instance, "component", component_or_spec))
    nodes = _objects(component_or_spec, "nodes").items()
    return [problem for name, node in nodes for problem in _of_node(instance, name, node)]


def refuse_private(instance: str, component_or_spec: object) -> None:
    """Raise `GraphError` if what comes from outside names what is not public: it is not tried.

    The form of a spec is checked as well.
    """
    if outside := check_public(instance, component_or_spec):
        is_spec = isinstance(component_or_spec, Mapping)
        wrong = read_spec(component_or_spec).problems if is_spec else ()
        raise GraphError([*wrong, *outside][:MAX_PROBLEMS])


def check_channels(path: str, node: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the channels of out-ports on which only flows themselves publish."""
    for name, options in _objects(node, "outputs").items():
        channels = options.get("channels")
        for channel in filter(is_own_channel, channels if isinstance(channels, list) else ()):
            text = f"on {channel!r:.100} only flows themselves publish."
            yield Problem(f"{path}outputs.{name}.channels", text, "Use another channel.")


def permissions_of(spec: Any, before: Any = None) -> dict[str, str]:
    """Return which permissions a spec needs beside that of its verb, by where; not for what stays.

    An in-port with channels reads what others publish, an out-port writes to those who listen, and
    a node with the id of another one takes that as a child.
    """
    there = _objects(before, "nodes")
    return dict(
        needed
        for name, node in _objects(spec, "nodes").items()
        if not is_same(node, there.get(name))
        for needed in _permissions(f"nodes.{name}", node)
    )


def _permissions(path: str, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if type(node.get("init")) is int:
        yield f"{path}.init", "edit_node"
    for side, permission in (("inputs", "read_port"), ("outputs", "write_port")):
        for port, options in _objects(node, side).items():
            if options.get("channels"):
                yield f"{path}.{side}.{port}.channels", permission


def _objects(given: Any, key: str) -> dict[str, Mapping[str, Any]]:
    """Return the objects that lie under a key, by their names; `check` says what else is there."""
    found = given.get(key) if isinstance(given, Mapping) else None
    named = found.items() if isinstance(found, Mapping) else ()
    return {name: value for name, value in named if isinstance(value, Mapping)}


def _of_node(instance: str, name: str, node: Mapping[str, Any]) -> Iterator[Problem]:
    yield from check_channels(f"nodes.{name}.", node)
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
