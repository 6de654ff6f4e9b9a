"""Other names of nodes, and how nodes are found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.twins import method_twin
from hipq_django.domain.serialization import is_storable
from hipq_django.domain.validation import id_from
from hipq_django.flow.exceptions import (
    AliasTakenError,
    InvalidAliasError,
    UnknownNodeError,
)
from hipq_django.flow.models import Alias, Node
from hipq_django.flow.models.node import deleted


class Aliases:
    """The aliases of a node: add, remove, iterate.

    Those of a relative of a run are changed when that ends.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def __iter__(self) -> Iterator[str]:
        found = list(self._rows.order_by("pk").values_list("name", flat=True))
        if not (found or self._node.exists()):
            raise deleted(self._node)
        return iter(found)

    @property
    def _rows(self) -> QuerySet[Alias]:
        using, node = self._node.using, self._node
        return Alias.objects.using(using).filter(node__in=Node.objects.using(using).row_of(node))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def add(self, name: str) -> None:
        """Give the node another name; raise `AliasTakenError` if another node has it."""
        node, checked = self._node, checked_alias(name)
        if node.of_run is not None:
            node.of_run.ask(node, "aliases.add", checked)
            return
        if not node.exists():
            raise deleted(node)
        row, _ = Alias.objects.using(node.using).get_or_create(
            instance=node.instance, name=checked, defaults={"node": node}
        )
        if row.node_id != node.pk:
            raise alias_taken(checked, row.node)

    def remove(self, name: str) -> None:
        """Take a name away; raise `InvalidAliasError` if the node has it not."""
        if (run := self._node.of_run) is not None:
            run.ask(self._node, "aliases.remove", checked_alias(name))
            return
        if not self._rows.filter(name=name).delete()[0]:
            known = ", ".join(map(repr, self)) or "none"
            raise InvalidAliasError(
                f"node {self._node.pk} has no alias {name!r:.100}; it has {known}."
            )

    aadd = method_twin(add)
    aremove = method_twin(remove)

    async def __aiter__(self) -> AsyncIterator[str]:
        for name in await sync_to_async(lambda: list(self))():
            yield name


def alias_taken(name: str, node: Node) -> AliasTakenError:
    """Return the error of an alias that a node has."""
    return AliasTakenError(f"alias {name!r} is that of {node}; remove it there.", node)


def checked_alias(name: object) -> str:
    """Return an alias; raise `InvalidAliasError` where it cannot be one."""
    if isinstance(name, str) and name[:1].isalpha() and len(name) <= 200 and is_storable(name):
        return name
    raise InvalidAliasError(
        f"alias {name!r:.100}: an alias begins with a letter and has at most 200 characters."
    )


def find(node: Any, *, instance: str = DEFAULT) -> Node | None:
    """Return the node with this id or alias, or None."""
    using = get_instance(instance).database
    nodes = Node.objects.using(using).filter(instance=instance)
    pk = id_from(node)
    if pk is not None:
        return nodes.filter(pk=pk).first()
    if not isinstance(node, str) or not is_storable(node):
        return None
    found = Alias.objects.using(using).filter(instance=instance, name=node)
    return nodes.filter(pk__in=found.values("node_id")).first()


def get(node: Any, *, instance: str = DEFAULT) -> Node:
    """Return the node with this id or alias; raise `UnknownNodeError` if there is none."""
    found = find(node, instance=instance)
    if found is None:
        raise UnknownNodeError(f"there is no node with the id or alias {node!r:.100}.")
    return found


afind = sync_to_async(find)
aget = sync_to_async(get)
