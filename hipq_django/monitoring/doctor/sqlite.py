"""What only SQLite can be asked."""

from __future__ import annotations

from typing import Any

from django.db import connections

from hipq_django.database.schema import TRIGGER
from hipq_django.monitoring.doctor.measurements import SQLite


def measure(using: str) -> SQLite:
    """Ask the connection."""
    connection: Any = connections[using]
    return SQLite(
        journal_mode=str(_value(using, "PRAGMA journal_mode")),
        transaction_mode=connection.transaction_mode or "DEFERRED",
        busy_timeout_seconds=float(_value(using, "PRAGMA busy_timeout")) / 1_000,
    )


def guard(using: str) -> str:
    """Return whether the guard trigger is 'enabled' or 'missing'."""
    name = f"SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name = '{TRIGGER}'"  # noqa: S608 - no input
    return "enabled" if _value(using, name) else "missing"


def _value(using: str, sql: str) -> Any:
    with connections[using].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]
