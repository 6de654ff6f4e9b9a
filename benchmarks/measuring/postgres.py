"""Asking the run's PostgreSQL database from outside the system that is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def is_used() -> bool:
    """Return whether the run's store is PostgreSQL."""
    return os.environ["DATABASE_URL"].startswith("postgres")


def sessions() -> list[int]:
    """Return the process ids of the other sessions of the run's database, where they run here."""
    if not is_used():
        return []
    import psycopg

    query = (
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        pids = [pid for (pid,) in connection.execute(query).fetchall()]
    return [pid for pid in pids if _is_server(pid)]


def _is_server(pid: int) -> bool:
    """Whether this is a process of PostgreSQL; another machine's ids are somebody else's here."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("postgres")
    except OSError:
        return False


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
