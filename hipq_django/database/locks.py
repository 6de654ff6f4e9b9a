"""Row locks, where the database has any."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import QuerySet


def locked(
    rows: QuerySet[Any], *, skip_locked: bool = False, to_delete: bool = False
) -> QuerySet[Any]:
    """Return `rows` with their row locks, where the database has any; no row that they join.

    NO KEY, because an enqueue holds a KEY SHARE lock on the queue through its foreign key and
    must not wait for a scheduler. Who is going `to_delete` the rows does wait for such a lock, or
    skips them.
    """
    features = connections[rows.db].features
    if not features.has_select_for_update:
        return rows
    return rows.select_for_update(
        skip_locked=skip_locked and features.has_select_for_update_skip_locked,
        of=("self",) if features.has_select_for_update_of else (),
        no_key=features.has_select_for_no_key_update and not to_delete,
    )


def first_for_key_share(rows: QuerySet[Any]) -> Any:
    """Return the first of `rows`, or None; nobody deletes it before the transaction ends.

    On PostgreSQL by the weak lock of a foreign key. Whoever waits for a live job, and finds a final
    one, has locked that as well; to wait for it in turn would be a deadlock.
    """
    connection = connections[rows.db]
    if connection.vendor != "postgresql":
        return locked(rows).first()
    sql, params = rows[:1].query.get_compiler(rows.db).as_sql()
    manager = rows.model._default_manager.using(rows.db)
    return next(iter(manager.raw(f"{sql} FOR KEY SHARE", params)), None)


def takes_writers_together(using: str) -> bool:
    """Return whether two transactions may write at the same moment: where rows have locks."""
    return connections[using].features.has_select_for_update
