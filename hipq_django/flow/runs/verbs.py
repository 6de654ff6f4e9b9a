"""What runs do to their family, aliases and connections, done when they end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from hipq_django.api.enqueueing import enqueue
from hipq_django.flow import family
from hipq_django.flow.exceptions import UnknownNodeError
from hipq_django.flow.graphs import applying
from hipq_django.flow.models import Node
from hipq_django.flow.ports import Port
from hipq_django.flow.runs.relatives import RELATIVE
from hipq_django.flow.stages import stage

Place = Sequence[Any]


def _spawn(node: Node, component: str | dict[str, Any], **options: Any) -> None:
    applying.start(component, parent=node, instance=node.instance, **options)


def _adopt(node: Node, orphan: int, name: str) -> None:
    family.adopt(node, _node(node, orphan), name)


def _disown(node: Node, child: int | str) -> None:
    family.disown(node, child if isinstance(child, str) else _node(node, child))


def _connect(node: Node, source: Place, targets: Sequence[Place]) -> None:
    _port(node, source).connect(*[_port(node, target) for target in targets])


def _disconnect(node: Node, source: Place, targets: Sequence[Place]) -> None:
    _port(node, source).disconnect(*[_port(node, target) for target in targets])


def _channels(node: Node, place: Place, channels: Sequence[str]) -> None:
    _port(node, place).channels = list(channels)


def _clear_default(node: Node, place: Place) -> None:
    del _port(node, place).default


def _enqueue(node: Node, job_type: str, data: Any, **options: Any) -> None:
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


def _node(node: Node, pk: int) -> Node:
    found = Node.objects.using(node.using).filter(pk=pk).first()
    if found is None:
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
