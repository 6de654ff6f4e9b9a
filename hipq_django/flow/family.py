"""Parents and children: whose trees nodes belong to, and how trees are deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.serialization import is_storable
from hipq_django.flow.delivering import wake
from hipq_django.flow.exceptions import FamilyError, NameTakenError
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import LogEntry, Message, Node, NodePort, StagedJob, Wake
from hipq_django.flow.models.node import deleted
from hipq_django.flow.publishing import announce
from hipq_django.flow.settings import flow_settings
from hipq_django.flow.values import Rest

MAX_NAME_CHARS = 200


def tree_of(node: Node) -> list[int]:
    """Return the ids of a node and all below it, parents first; raise `NodeDeletedError`."""
    if not node.exists():
        raise deleted(node)
    return ids_of_tree(node.pk, node.using)


def ids_of_tree(root: int, using: str) -> list[int]:
    """Return the id of a node with those of all below it, parents first."""
    return [pk for level in _levels([root], using) for pk in level]


def _levels(ids: list[int], using: str) -> Iterable[list[int]]:
    seen: set[int] = set()
    while ids:
        yield ids
        seen.update(ids)
        rows = Node.objects.using(using).filter(ids_in("parent", ids)).order_by("pk")
        ids = [pk for pk in rows.values_list("pk", flat=True) if pk not in seen]


def ancestors_of(node: Node) -> list[int]:
    """Return the ids of a node and those above it, up to the root."""
    found: list[int] = []
    pk: int | None = node.pk
    while pk is not None and pk not in found:
        found.append(pk)
        rows = Node.objects.using(node.using).filter(pk=pk)
        pk = rows.values_list("parent_id", flat=True).first()
    return found


def is_doomed(node: Node) -> bool:
    """Return whether a tree that a node is in is deleted once all of it is terminated."""
    rows = Node.objects.using(node.using).filter(pk__in=ancestors_of(node))
    return rows.filter(doomed=True).exists()


def lock_nodes(ids: Iterable[int], using: str) -> None:
    """Lock nodes in the order of their ids, as everybody does who locks several of them."""
    list(locked(Node.objects.using(using).filter(ids_in("pk", set(ids))).order_by("pk")))


def checked_child_name(name: object) -> str:
    """Return the name of a child; raise `FamilyError` if it is none."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and is_storable(name):
        return name
    raise FamilyError(f"child name {name!r:.100}: give a text of 1 to {MAX_NAME_CHARS} characters.")


def check_kin(verb: str, own: Node, other: Node) -> None:
    """Raise `FamilyError` for a node of another instance than `own`."""
    if other.instance != own.instance:
        raise FamilyError(
            f"{verb}: {other} is of instance {other.instance!r}, and {own} of {own.instance!r}."
        )


def check_depth(parent: Node, height: int) -> None:
    """Raise `FamilyError` if a tree of this height below `parent` would be too deep."""
    most = flow_settings(parent.instance).max_depth
    depth = len(ancestors_of(parent)) + height
    if depth > most:
        raise FamilyError(
            f"{parent}: the tree would be {depth} levels deep, at most {most} are allowed "
            "(setting FLOW: MAX_DEPTH)."
        )


def name_taken(parent: int, name: str, using: str) -> NameTakenError | None:
    """Return the error of a name that a child of the parent has, or None."""
    other = Node.objects.using(using).filter(parent=parent, name=name).first()
    if other is None:
        return None
    return NameTakenError(f"node {parent} has a child {name!r}: {other}.", other)


def adopt(parent: Node, orphan: Node, name: str) -> None:
    """Take a node without parent as a child; raise `FamilyError` where that cannot be.

    A graph looks at its other children then.
    """
    with write_transaction(parent.using):
        become_parent(parent, orphan, name)
        _wake_graph(parent)


def become_parent(parent: Node, orphan: Node, name: str) -> None:
    """Take a node without parent as a child; the parent is not woken.

    An orphan is a root. So it is above the parent exactly if it is the root of the parent's tree;
    both are locked in the order of their ids, and that is looked at again.
    """
    checked = checked_child_name(name)
    check_kin("adopt", parent, orphan)
    using = parent.using
    with write_transaction(using):
        root = ancestors_of(parent)[-1]
        rows = Node.objects.using(using).filter(pk__in={root, orphan.pk, parent.pk})
        found = {row.pk: row for row in locked(rows.order_by("pk"))}
        for node in (parent, orphan):
            if node.pk not in found or found[node.pk].create_time != node.create_time:
                raise deleted(node)
        if found[orphan.pk].parent_id is not None:
            raise FamilyError(f"{orphan} has a parent; let that disown it first.")
        top = ancestors_of(parent)[-1]
        if top == orphan.pk or top != root:
            raise FamilyError(f"{orphan} is {parent} itself, or above it; it cannot be its child.")
        check_depth(parent, len(list(_levels([orphan.pk], using))))
        _set_parent(orphan, parent, checked)


def _set_parent(orphan: Node, parent: Node, name: str) -> None:
    using = parent.using
    try:
        with transaction.atomic(using=using):
            rows = Node.objects.using(using).filter(pk=orphan.pk, parent__isnull=True)
            rows.update(parent=parent.pk, name=name)
    except IntegrityError as error:
        raise name_taken(parent.pk, name, using) or error from error


def disown(parent: Node, child: Node | str) -> None:
    """Let a child go; raise `FamilyError` if it is none."""
    using = parent.using
    if not parent.exists():
        raise deleted(parent)
    mine = Node.objects.using(using).filter(parent=parent.pk)
    with write_transaction(using):
        if _named(mine, child).update(parent=None, name=""):
            _wake_graph(parent)
            return
    known = ", ".join(map(repr, mine.values_list("name", flat=True)[:20])) or "none"
    raise FamilyError(f"{parent} has no child {child!r:.100}; it has {known}.")


def _wake_graph(parent: Node) -> None:
    """Let a graph that has other children now look at them; other parents are not told of it."""
    using = parent.using
    wake(graphs_among([parent.pk], using), parent.instance, using, clock.now(using))


def graphs_among(nodes: Collection[int], using: str) -> set[int]:
    """Return those of some nodes that are graphs: how they are follows from their children."""
    if not nodes:
        return set()
    rows = Node.objects.using(using).filter(pk__in=nodes, job_type__name=GRAPH)
    return set(rows.values_list("pk", flat=True))


def _named(nodes: QuerySet[Node], child: Node | str) -> QuerySet[Node]:
    if isinstance(child, Node):
        return nodes.filter(pk=child.pk, create_time=child.create_time)
    return nodes.filter(name=child)


def is_terminated(node: Node) -> bool:
    """Return whether a node and all below it are terminated."""
    rows = Node.objects.using(node.using).filter(ids_in("pk", tree_of(node)))
    return not rows.exclude(rest=Rest.TERMINATED).exists()


def delete(node: Node) -> bool:
    """Delete a terminated tree; return False if something in it is not terminated."""
    with write_transaction(node.using):
        is_gone = delete_tree(tree_of(node), node.using)
        if not (is_gone or node.exists()):
            raise deleted(node)
    return is_gone


def delete_tree(ids: list[int], using: str, *, skip_locked: bool = False) -> bool:
    """Delete a tree with these nodes; return False if one is not terminated, or another one comes.

    With `skip_locked` return False, too, if somebody has locked a node or a port.
    """
    rows = list(locked(_nodes(ids, using), skip_locked=skip_locked, to_delete=True))
    if len(rows) < len(ids) or ids_of_tree(ids[0], using) != ids:
        return False
    if any(row.rest != Rest.TERMINATED for row in rows):
        return False
    if not _delete_rows(ids, using, skip_locked=skip_locked):
        return False
    gone = [(pk, {"deleted": True}) for pk in ids]
    announce(gone, rows[0].instance, using, skip_locked=skip_locked)
    return True


def _nodes(ids: list[int], using: str) -> Any:
    return Node.objects.using(using).filter(ids_in("pk", ids)).order_by("pk")


def _delete_rows(ids: list[int], using: str, *, skip_locked: bool) -> bool:
    """Delete nodes, whose rows are locked, with all that belongs to them."""
    ports = NodePort.objects.using(using).filter(ids_in("node", ids))
    got = len(locked(ports.order_by("pk"), skip_locked=skip_locked, to_delete=True))
    if skip_locked and got < ports.count():
        return False
    # Not only of those that were got: while they were waited for, one may have been created.
    Message.objects.using(using).filter(ids_in("port__node", ids)).delete()
    Wake.objects.using(using).filter(ids_in("node", ids)).delete()
    StagedJob.objects.using(using).filter(ids_in("node", ids)).delete()
    LogEntry.objects.using(using).filter(ids_in("node", ids)).delete()
    ports.delete()
    nodes = _nodes(ids, using)
    nodes.update(parent=None, name="")  # PROTECT would keep the parents of a tree
    nodes.delete()
    return True
