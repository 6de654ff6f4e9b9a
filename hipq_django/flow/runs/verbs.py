"""What runs do to their family, aliases and connections, done when they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from django.db import Error

from hipq_django.api.building import given_values
from hipq_django.api.enqueueing import enqueue
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.serialization import error_of
from hipq_django.exceptions import HipqError
from hipq_django.flow import family
from hipq_django.flow.delivering import LockedPortError
from hipq_django.flow.exceptions import FlowError, UnknownNodeError
from hipq_django.flow.graphs import applying
from hipq_django.flow.models import Node
from hipq_django.flow.ports import Port
from hipq_django.flow.runs.relatives import RELATIVE
from hipq_django.flow.stages import stage

Place = Sequence[Any]


def _spawn(node: Node, component: str | dict[str, Any], **options: Any) -> None:
    applying.start(component, parent=node, instance=node.instance, **options)


def _adopt(node: Node, orphan: int, name: str, created: str = "") -> None:
    family.adopt(node, _node(node, orphan, created), name)


def _disown(node: Node, child: int | str, created: str = "") -> None:
    family.disown(node, child if isinstance(child, str) else _node(node, child, created))


def _connect(node: Node, source: Place, targets: Sequence[Place]) -> None:
    _port(node, source).connect(*[_port(node, target) for target in targets])


def _disconnect(node: Node, source: Place, targets: Sequence[Place]) -> None:
    _port(node, source).disconnect(*[_port(node, target) for target in targets])


def _channels(node: Node, place: Place, channels: Sequence[str]) -> None:
    _port(node, place).channels = list(channels)


def _clear_default(node: Node, place: Place) -> None:
    del _port(node, place).default


_IN_JSON: dict[str, Callable[[Any], Any]] = {
    "scheduled_run_time": datetime.isoformat,
    "delay": timedelta.total_seconds,
    "throttle_factor": float,
}


def kept_options(new: NewJob) -> dict[str, Any]:
    """Return the options of a job in JSON, in which a run keeps them for `_enqueue`."""
    values = given_values(new)
    for name in _IN_JSON.keys() & values.keys():
        values[name] = _IN_JSON[name](values[name])
    return values


def _enqueue(node: Node, job_type: str, data: Any, **options: Any) -> None:
    if moment := options.get("scheduled_run_time"):
        options["scheduled_run_time"] = datetime.fromisoformat(moment)
    enqueue(job_type, data, instance=node.instance, **options)


def _delete(node: Node) -> None:
    if node.is_terminated():  # by the dispatcher, which waits for none of its ports
        node.terminate(delete=True)


def _relative(node: Node, pk: int, verb: str, *args: Any, **options: Any) -> None:
    relative = _node(node, pk)
    if verb in VERBS:
        VERBS[verb](relative, *args, **options)
    else:
        attrgetter(verb)(relative)(*args, **options)
    node.refresh_from_db(fields=["parent", "rest", "state_values"])  # it may be in that tree


def _port(node: Node, place: Place) -> Port:
    owner, direction, name = place
    return Port(node if owner == node.pk else _node(node, owner), direction, name)


def _node(node: Node, pk: int, created: str = "") -> Node:
    """Return a node that a run has noted; runs of an older release do not say when it was made."""
    found = Node.objects.using(node.using).filter(pk=pk).first()
    if found is None or (created and datetime.fromisoformat(created) != found.create_time):
        raise UnknownNodeError(f"{node} names node {pk}, which is gone.")
    return found


VERBS: dict[str, Callable[..., None]] = {
    "spawn": _spawn,
    "adopt": _adopt,
    "disown": _disown,
    "connect": _connect,
    "disconnect": _disconnect,
    "channels": _channels,
    "clear_default": _clear_default,
    "enqueue": _enqueue,
    "stage": stage,
    "delete": _delete,
    RELATIVE: _relative,
}


def do(node: Node, verb: str, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Do what a run has noted; raise `FlowError` also where code of the project breaks in it.

    It checks arguments, for example, and would keep the run's end from being written for ever.
    """
    try:
        VERBS[verb](node, *args, **options)
    except (HipqError, Error, LockedPortError):
        raise
    except Exception as error:
        raise FlowError(f"{verb}: {error_of(error)}") from error
