"""How many transactions a PostgreSQL database has seen."""

from __future__ import annotations

import os
import time
from urllib.parse import urlsplit, urlunsplit

PATIENCE_SECONDS = 15


def count_transactions(url: str | None = None) -> int | None:
    """Return the transactions of the run's database so far; None where it is not PostgreSQL.

    A session reports when it ends, so this waits until all sessions have, for a few seconds.
    """
    parts = urlsplit(url or os.environ.get("DATABASE_URL", ""))
    if not parts.scheme.startswith("postgres"):
        return None
    import psycopg

    name = parts.path.lstrip("/")
    elsewhere = urlunsplit(parts._replace(scheme="postgresql", path="/postgres"))
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        until = time.monotonic() + PATIENCE_SECONDS
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        while connection.execute(query, [name]).fetchone() != (0,):
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s", [name]
        ).fetchone()
    return int(row[0]) if row else None
