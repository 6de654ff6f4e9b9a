"""Row locks, where the database has any."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import QuerySet


def locked(
    rows: QuerySet[Any], *, skip_locked: bool = False, to_delete: bool = False
) -> QuerySet[Any]:
    """Return `rows` with row locks, if the database has any; joined rows are not locked.

    NO KEY, because an enqueue holds a KEY SHARE lock on the queue through its foreign key and
    must not wait for a scheduler. A caller that is going `to_delete` the rows waits for such a
    lock, or skips them.
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
    """Return the first of `rows`, or None; it cannot be deleted before the transaction ends.

    PostgreSQL uses the weak lock of a foreign key. A transaction that waits for a live job, and
    finds a final one, has locked that as well; waiting for it in turn would be a deadlock.
    """
    if connections[rows.db].vendor != "postgresql":
        return locked(rows).first()
    return next(iter(for_key_share(rows[:1])), None)


def for_key_share(rows: QuerySet[Any]) -> list[Any]:
    """Return `rows` with the weak lock of a foreign key, which others may have as well.

    None of them can be deleted, or locked to be deleted, before the transaction ends.
    """
    return _locked_for(rows, "KEY SHARE")


def for_share(rows: QuerySet[Any]) -> list[Any]:
    """Return `rows` with a lock that others may have as well.

    Nobody else changes one of them before the transaction ends.
    """
    return _locked_for(rows, "SHARE")


def _locked_for(rows: QuerySet[Any], strength: str) -> list[Any]:
    """Return `rows` with a lock that Django has no name for; without it where there is none."""
    if connections[rows.db].vendor != "postgresql":
        return list(rows)
    sql, params = rows.query.get_compiler(rows.db).as_sql()
    lock = f"FOR {strength} OF {rows.model._meta.db_table}"
    return list(rows.model._default_manager.using(rows.db).raw(f"{sql} {lock}", params))


def takes_writers_together(using: str) -> bool:
    """Return whether two transactions may write at the same time, because rows have locks."""
    return connections[using].features.has_select_for_update
