"""Graphs that are started by their names: declared in code, or kept in the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.validation import checked_name, checked_type_name
from hipq_django.exceptions import InvalidJobError, InvalidJobTypeError
from hipq_django.flow.declaring import GRAPHS
from hipq_django.flow.models import Graph
from hipq_django.job_types.registry import get_declared


def graph(name: str, spec: Mapping[str, Any], *, instance: str = DEFAULT) -> str:
    """Name a graph in code, so that `flow.start(name)` starts it; return the name.

    It is checked when it is started: its components may be declared later. Raise
    `InvalidJobTypeError` for a name that cannot be, or that code has given to something else.
    """
    try:
        key = checked_name("instance", instance), checked_type_name(name)
    except InvalidJobError as error:
        raise InvalidJobTypeError(str(error).replace("job type", "graph", 1)) from error
    if get_declared(*key) is not None:
        raise InvalidJobTypeError(
            f"graph {name!r}: a job type, or component, of instance {instance!r} has this name; "
            "rename one of them."
        )
    if GRAPHS.get(key, spec) != spec:  # a module that is imported again names the same one
        raise InvalidJobTypeError(
            f"graph {name!r} is declared twice in instance {instance!r}, with different specs; "
            "rename one of them."
        )
    GRAPHS[key] = spec
    return name


def is_declared(instance: str, name: str) -> bool:
    """Return whether code gives this name to a graph, a component or a job type."""
    return (instance, name) in GRAPHS or get_declared(instance, name) is not None


def graph_named(instance: str, name: str) -> Mapping[str, Any] | None:
    """Return the spec of a graph: as code declares it, else as the database has it; or None."""
    config = get_instance(instance)
    if is_declared(instance, name):
        return GRAPHS.get((instance, name))
    rows = Graph.objects.using(config.database)
    specs = rows.filter(instance=instance, name=name).values_list("spec", flat=True)
    found: Mapping[str, Any] | None = specs.first()
    return found
