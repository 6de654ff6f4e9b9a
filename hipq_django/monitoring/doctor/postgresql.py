"""The queries that only PostgreSQL answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections

from hipq_django.monitoring.doctor.measurements import PostgreSQL

_TABLES = ["hipq_answer", "hipq_attempt", "hipq_job", "hipq_queue", "hipq_worker"]

_SETTINGS = """
    SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean"""

_WITHOUT_AUTOVACUUM = """
    SELECT c.relname FROM pg_class c, pg_options_to_table(c.reloptions)
    WHERE c.oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
        AND option_name = 'autovacuum_enabled' AND NOT option_value::boolean
    ORDER BY c.relname"""

_INVALID_INDEXES = """
    SELECT i.indexrelid::regclass::text FROM pg_index i
    WHERE NOT (i.indisvalid AND i.indisready)
        AND i.indrelid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
    ORDER BY 1"""


def measure(using: str) -> PostgreSQL:
    """Ask a PostgreSQL server; return the defaults for other databases."""
    if connections[using].vendor != "postgresql":
        return PostgreSQL()
    [has_autovacuum] = _fetch(using, _SETTINGS)
    return PostgreSQL(
        has_autovacuum=has_autovacuum,
        tables_without_autovacuum=tuple(_fetch(using, _WITHOUT_AUTOVACUUM, [_TABLES])),
        invalid_indexes=tuple(_fetch(using, _INVALID_INDEXES, [_TABLES])),
        notices_dead_peer=notices_dead_peer(_connection_parameters(using)),
    )


def notices_dead_peer(parameters: Mapping[str, Any]) -> bool:
    """Return whether a connection with these parameters of libpq finds out soon.

    By a socket of Unix it always does: its peer is on the same machine.
    """
    host = str(parameters.get("host") or "/")
    is_told = parameters.get("tcp_user_timeout") or parameters.get("keepalives_idle")
    return bool(host.startswith(("/", "@")) or is_told)


def _connection_parameters(using: str) -> Mapping[str, Any]:
    """Return what was said to libpq, by the setting, a service file or the environment."""
    info: Any = getattr(connections[using].connection, "info", None)
    if hasattr(info, "get_parameters"):
        return {"host": info.host, **info.get_parameters()}
    settings = connections[using].settings_dict
    return {"host": settings["HOST"], **settings["OPTIONS"]}


def _fetch(using: str, sql: str, params: Sequence[Any] = ()) -> list[Any]:
    """Return the first column of the rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return [value for (value,) in cursor.fetchall()]
