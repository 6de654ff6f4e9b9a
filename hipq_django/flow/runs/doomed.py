"""Deletes trees that are to be deleted once they are wholly terminated.

Each in a transaction of its own: one that cannot be deleted stops neither other trees nor runs.
"""

from __future__ import annotations

from collections.abc import Collection

from hipq_django.database.isolation import Isolation
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import worker_transaction
from hipq_django.flow.family import delete_tree, ids_of_tree
from hipq_django.flow.models import Node
from hipq_django.flow.values import Rest


def delete_doomed(terminated: Collection[int], left_alone: Isolation[int], using: str) -> None:
    """Delete the doomed trees to which terminated nodes belong, where all others are that, too."""
    for root in _doomed_among(terminated, using):
        ids = ids_of_tree(root, using)
        rows = Node.objects.using(using).filter(ids_in("pk", ids))
        if not rows.exclude(rest=Rest.TERMINATED).exists():
            with left_alone.apart(root), worker_transaction(using):
                delete_tree(ids, using, skip_locked=True)


def _doomed_among(nodes: Collection[int], using: str) -> list[int]:
    """Return which of some nodes, and of those above them, are doomed."""
    doomed, seen, level = set[int](), set[int](), set(nodes)
    while level:
        seen |= level
        rows = Node.objects.using(using).filter(ids_in("pk", level))
        found = list(rows.values_list("pk", "parent_id", "doomed"))
        doomed |= {pk for pk, _, is_doomed in found if is_doomed}
        level = {parent for _, parent, _ in found if parent is not None} - seen
    return sorted(doomed)
