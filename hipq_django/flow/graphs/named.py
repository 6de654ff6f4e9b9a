"""Graphs that are started by their names: declared in code, or kept in the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.flow.models import Graph
from hipq_django.job_types.registry import get_declared

MAX_NAMES = 1_000
"""Among how many stored graphs the nearest name is looked for."""

_declared: dict[tuple[str, str], Mapping[str, Any]] = {}
"""The graphs that code has named, by instance and name."""


def graph(name: str, spec: Mapping[str, Any], *, instance: str = DEFAULT) -> str:
    """Name a graph in code, so that `flow.start(name)` starts it; return the name.

    It is checked when it is started: its components may be declared later.
    """
    _declared[instance, name] = spec
    return name


def declared_graphs(instance: str) -> dict[str, Mapping[str, Any]]:
    """Return the graphs that code has named."""
    return {name: spec for (inst, name), spec in _declared.items() if inst == instance}


def stored_names(instance: str) -> list[str]:
    """Return the names of the graphs that are kept in the database."""
    rows = Graph.objects.using(get_instance(instance).database).filter(instance=instance)
    return list(rows.order_by("name").values_list("name", flat=True)[:MAX_NAMES])


def is_declared(instance: str, name: str) -> bool:
    """Return whether code gives this name to a graph, a component or a job type."""
    return (instance, name) in _declared or get_declared(instance, name) is not None


def graph_named(instance: str, name: str) -> Mapping[str, Any] | None:
    """Return the spec of a graph: as code declares it, else as the database has it; or None."""
    if is_declared(instance, name):
        return _declared.get((instance, name))
    rows = Graph.objects.using(get_instance(instance).database)
    specs = rows.filter(instance=instance, name=name).values_list("spec", flat=True)
    found: Mapping[str, Any] | None = specs.first()
    return found
