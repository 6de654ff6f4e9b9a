"""Graphs that are kept in the database under a name: written, and started."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction

from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.validation import checked_type_name
from hipq_django.exceptions import InvalidJobError
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.graphs.applying import start
from hipq_django.flow.graphs.checking import checked_spec
from hipq_django.flow.graphs.named import is_declared
from hipq_django.flow.graphs.publicity import refuse_private
from hipq_django.flow.models import Graph, Node


def create_graph(name: str, spec: Any, *, instance: str) -> Graph:
    """Keep a spec under a name; raise `FlowError`, or `GraphError` with all its problems.

    It comes from outside, so all that it names must be public.
    """
    using = get_instance(instance).database
    checked_name(name, instance)
    checked_spec(spec, only_public=True, instance=instance)
    try:
        with transaction.atomic(using=using):
            return Graph.objects.using(using).create(
                instance=instance, name=name, spec=spec, update_time=clock.now(using)
            )
    except IntegrityError as error:
        raise FlowError(f"graph {name!r} is there already; edit that, or give a name.") from error


def change_graph(row: Graph, spec: Any, *, version: int) -> None:
    """Write another spec, unless somebody else has written one after this version."""
    checked_name(row.name, row.instance)
    checked_spec(spec, only_public=True, instance=row.instance)
    rows = Graph.objects.using(row.using).filter(pk=row.pk, version=version)
    now = clock.now(row.using)
    if not rows.update(spec=spec, version=version + 1, update_time=now):
        raise _changed_after(version, row)


def start_graph(row: Graph, *, version: int, **options: Any) -> Node:
    """Start a graph as it is kept, if what it names is still public; options of `flow.start`.

    Raise `FlowError` if somebody has written another spec after this version.
    """
    checked_name(row.name, row.instance)
    using = row.using
    with write_transaction(using):
        kept = locked(Graph.objects.using(using).filter(pk=row.pk, version=version)).first()
        if kept is None:
            raise _changed_after(version, row)
        refuse_private(row.instance, kept.spec)
        return start(kept.spec, instance=row.instance, **options)


def _changed_after(version: int, row: Graph) -> FlowError:
    return FlowError(f"graph {row.name!r} was changed, or deleted, after version {version}.")


def checked_name(name: str, instance: str) -> str:
    """Return the name of a graph; raise `FlowError` for one that the code gives to something."""
    try:
        checked_type_name(name)
    except InvalidJobError as error:
        raise FlowError(str(error).replace("job type", "graph", 1)) from error
    if is_declared(instance, name):
        raise FlowError(f"{name!r} is declared in code, which goes first; give another name.")
    return name
