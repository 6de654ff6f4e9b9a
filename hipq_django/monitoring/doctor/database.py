"""What the doctor says of the database: it does not replace the monitoring of the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import connections

from hipq_django.monitoring.doctor.findings import Finding, problem, warning

SKEWED_SECONDS = 5.0

LARGE_BYTES = 1_000_000_000
"""Above this size of hipq_job a job mostly finds pages that were not written since a checkpoint."""

_TABLES = ["hipq_answer", "hipq_attempt", "hipq_job", "hipq_queue", "hipq_worker"]

_WITH_PARTS = """
    SELECT unnest(%s::text[]) UNION SELECT inhrelid::regclass::text FROM pg_inherits
    WHERE inhparent = to_regclass('hipq_job')"""
"""These tables, and the tables of queues."""

_HAS_AUTOVACUUM = """
    SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean"""

_WITHOUT_AUTOVACUUM = """
    SELECT c.relname FROM pg_class c, pg_options_to_table(c.reloptions)
    WHERE c.oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
        AND option_name = 'autovacuum_enabled' AND NOT option_value::boolean
    ORDER BY c.relname"""

_WAL = """
    SELECT unnest(ARRAY[SUM(pg_total_relation_size(to_regclass(name)))::text,
        current_setting('full_page_writes'), current_setting('wal_compression')])
    FROM unnest(%s::text[]) AS name"""

_INVALID_INDEXES = """
    SELECT i.indexrelid::regclass::text FROM pg_index i
    WHERE NOT (i.indisvalid AND i.indisready)
        AND i.indrelid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
    ORDER BY 1"""


def findings(using: str, ahead: timedelta) -> Iterator[Finding]:
    """Yield what is wrong with the database, whose clock is so far ahead of this machine's."""
    yield from _clock(using, ahead.total_seconds())
    if connections[using].vendor == "postgresql":
        yield from _indexes(using)
        yield from _autovacuum(using)
        yield from _wal(using)
        if not notices_dead_peer(_connection_parameters(using)):
            yield _dead_peer(using)


def _clock(using: str, offset: float) -> Iterator[Finding]:
    if abs(offset) > SKEWED_SECONDS:
        side = "behind" if offset > 0 else "ahead of"
        yield warning(
            "clock_skew",
            f"database {using}",
            f"this machine's clock is {abs(offset):.1f} s {side} the database's.",
            "Workers correct for it; times in logs, and in your own code, do not agree.",
            "Synchronize the clocks of both machines by NTP.",
        )


def _indexes(using: str) -> Iterator[Finding]:
    if invalid := _fetch(using, _INVALID_INDEXES, [_with_parts(using, *_TABLES)]):
        yield problem(
            "invalid_indexes",
            f"database {using}",
            f"indexes are invalid: {', '.join(invalid)}.",
            "Each write updates them, but no query uses them.",
            f"Run REINDEX INDEX CONCURRENTLY {invalid[0]};",
        )


def _autovacuum(using: str) -> Iterator[Finding]:
    off = {
        f"table {table}": f"ALTER TABLE {table} RESET (autovacuum_enabled);"
        for table in _fetch(using, _WITHOUT_AUTOVACUUM, [_with_parts(using, *_TABLES)])
    }
    if _fetch(using, _HAS_AUTOVACUUM) != [True]:
        off[f"database {using}"] = "Set autovacuum = on and track_counts = on in postgresql.conf."
    for where, what_to_do in off.items():
        yield problem(
            "autovacuum_off",
            where,
            "autovacuum is off.",
            "Dead rows stay, and every probe for jobs reads them.",
            what_to_do,
        )


def _wal(using: str) -> Iterator[Finding]:
    size, full_page_writes, wal_compression = _fetch(using, _WAL, [_with_parts(using, "hipq_job")])
    if writes_whole_pages(int(size), full_page_writes, wal_compression):
        connection: Any = connections[using]
        method = "lz4" if connection.pg_version >= 150_000 else "on"
        yield warning(
            "wal_compression",
            f"database {using}",
            "hipq_job has more than 1 GB, and wal_compression is off.",
            "After a checkpoint each job may write a whole page: 7 kB instead of 1.",
            f"ALTER SYSTEM SET wal_compression = '{method}'; SELECT pg_reload_conf();",
        )


def writes_whole_pages(size: int, full_page_writes: str, wal_compression: str) -> bool:
    """Return whether jobs write whole pages to the log, by the bytes of hipq_job and settings."""
    return size > LARGE_BYTES and (full_page_writes, wal_compression) == ("on", "off")


def _dead_peer(using: str) -> Finding:
    return warning(
        "dead_peer",
        f"database {using}",
        "OPTIONS has neither tcp_user_timeout nor keepalives_idle.",
        "If the network drops a connection silently, handlers and requests wait for hours. Workers "
        "set these options for their own connections only.",
        "Set OPTIONS: 'connect_timeout': 10, 'keepalives_idle': 10, 'keepalives_interval': 5, "
        "'keepalives_count': 3, 'tcp_user_timeout': 30000.",
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


def _with_parts(using: str, *tables: str) -> list[Any]:
    return _fetch(using, _WITH_PARTS, [[*tables]])


def _fetch(using: str, sql: str, params: Sequence[Any] = ()) -> list[Any]:
    """Return the first column of the rows."""
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        return [value for (value,) in cursor.fetchall()]
