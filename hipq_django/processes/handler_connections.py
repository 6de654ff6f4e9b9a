"""The database connections of a handler's thread, looked after between two jobs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import Error, connections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

_WITHOUT_TRANSACTION = (0, 4)
"""libpq's words for a session that is idle, and for one that is broken."""


class HandlerConnections:
    """Those of the thread that makes it."""

    def __init__(self) -> None:
        self._own = connections.all()

    def __iter__(self) -> Iterator[BaseDatabaseWrapper]:
        return iter(self._own)

    def close_old(self) -> None:
        """Do what Django does around a request, at little cost where none is open."""
        for connection in self._own:
            if connection.connection is not None:
                connection.close_if_unusable_or_obsolete()

    def end_transactions_and_close_old(self) -> list[str]:
        """Roll back what a handler left open; return the aliases of those databases.

        Else all that later jobs of the thread write would be part of that transaction.
        """
        left_open: list[str] = []
        for connection in self._own:
            if connection.connection is None:
                continue
            if _is_in_transaction(connection):
                left_open.append(connection.alias)
                connection.in_atomic_block = False  # so that it can be opened again
                with suppress(Error):
                    connection.close()
            else:
                connection.close_if_unusable_or_obsolete()
        return left_open


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    driver: Any = connection.connection
    if not connection.settings_dict["AUTOCOMMIT"]:
        return False
    if connection.in_atomic_block or not connection.autocommit:
        return True
    if connection.vendor == "postgresql":
        return bool(driver.pgconn.transaction_status not in _WITHOUT_TRANSACTION)
    return bool(getattr(driver, "in_transaction", False))
