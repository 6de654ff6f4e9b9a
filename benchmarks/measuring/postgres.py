"""Asking the run's PostgreSQL database from outside the system that is measured."""

from __future__ import annotations

import os
from typing import Any


def is_used() -> bool:
    """Return whether the run's store is PostgreSQL."""
    return os.environ["DATABASE_URL"].startswith("postgres")


def analyze() -> None:
    """Let the planner know what is in the tables, as autovacuum would within a minute."""
    if is_used():
        import psycopg

        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
            connection.execute("ANALYZE")


def ask(query: str, *parameters: Any) -> int:
    """Return the one number that a query yields, by a connection of its own."""
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        row = connection.execute(query, parameters).fetchone()
    return int(row[0]) if row else 0
