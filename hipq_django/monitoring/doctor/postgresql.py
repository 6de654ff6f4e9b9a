"""What only PostgreSQL can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.apps import apps
from django.db import connections

from hipq_django.database.requirements import isolation_level
from hipq_django.database.schema import RANGED, STORAGE, TABLE, TRIGGER
from hipq_django.monitoring.doctor.measurements import PostgreSQL, TableRows, Transaction, Wait

PROBES = 5
"""How many statements ask which server process answers them."""

_TRANSACTIONS = """
    SELECT pid::text, EXTRACT(epoch FROM clock_timestamp() - xact_start)::float, state,
        application_name
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        AND datname = current_database()
    UNION ALL
    SELECT '', EXTRACT(epoch FROM clock_timestamp() - prepared)::float, 'prepared', gid
    FROM pg_prepared_xacts WHERE database = current_database()
    ORDER BY 2 DESC LIMIT 10"""

_TYPE_CHECKS = """
    SELECT conname FROM pg_attribute JOIN pg_constraint ON contypid = atttypid
    WHERE attrelid = to_regclass(%s) AND attname = ANY(%s) AND contypid <> 0
    GROUP BY conname HAVING count(*) = %s"""

_WAITS = """
    SELECT pid, EXTRACT(epoch FROM clock_timestamp() - MIN(waitstart))::float, pg_blocking_pids(pid)
    FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE NOT granted AND waitstart IS NOT NULL AND datname = current_database()
        AND pid <> pg_backend_pid()
    GROUP BY pid ORDER BY 2 DESC LIMIT 10"""

_LOCKERS = """
    WITH RECURSIVE session (pid) AS (
        SELECT COALESCE(pid, 0) FROM pg_locks
        WHERE mode = 'AccessExclusiveLock'
            AND relation = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
        UNION
        SELECT unnest(pg_blocking_pids(pid)) FROM session
    )
    SELECT pid FROM session WHERE pg_blocking_pids(pid) = '{}' ORDER BY pid"""

_ROWS = """
    SELECT c.relname, s.n_live_tup, s.n_dead_tup, s.n_mod_since_analyze,
        COALESCE((SELECT option_value::boolean FROM pg_options_to_table(c.reloptions)
            WHERE option_name = 'autovacuum_enabled'), true)
    FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid
    WHERE c.oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
    ORDER BY c.relname"""

_INVALID = """
    SELECT i.indexrelid::regclass::text FROM pg_index i
    WHERE NOT (i.indisvalid AND i.indisready)
        AND i.indrelid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
    ORDER BY 1"""

_STORAGE = """
    SELECT option_name, option_value::float
    FROM pg_class c, pg_options_to_table(c.reloptions)
    WHERE c.oid = to_regclass(%s) AND option_name = ANY(%s::text[])"""

_GUARD = """
    SELECT tgenabled::text FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND tgname = %s"""

TABLES = ("hipq_answer", "hipq_attempt", "hipq_job", "hipq_queue", "hipq_worker")


def measure(using: str) -> PostgreSQL:
    """Ask the server. Sessions of other roles are seen with the role pg_read_all_stats only."""
    return PostgreSQL(
        isolation=isolation_level(using),
        autovacuum=all(_is_on(using, name) for name in ("autovacuum", "track_counts")),
        backends=len({_value(using, "SELECT pg_backend_pid()") for _ in range(PROBES)}),
        transactions=tuple(Transaction(*row) for row in _fetch(using, _TRANSACTIONS)),
        waits=tuple(Wait(pid, span, tuple(by)) for pid, span, by in _fetch(using, _WAITS)),
        tables=tuple(TableRows(*row) for row in _fetch(using, _ROWS, [list(TABLES)])),
        storage=dict(_storage(using)),
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


def _all_tables() -> list[str]:
    return [model._meta.db_table for model in apps.get_app_config("hipq").get_models()]


def lockers(using: str) -> tuple[int, ...]:
    """Return the processes that keep tables locked even for reading; 0: a prepared transaction.

    Behind an ALTER TABLE that waits nobody can read either: then it is those that it waits for.
    """
    return tuple(pid for (pid,) in _fetch(using, _LOCKERS, [_all_tables()]))


def invalid_indexes(using: str) -> tuple[str, ...]:
    """Return the names of indexes whose concurrent creation failed."""
    return tuple(name for (name,) in _fetch(using, _INVALID, [list(TABLES)]))


def type_checks(using: str) -> set[str]:
    """Return the names of the checks that the types of all columns with a range have."""
    return {name for (name,) in _fetch(using, _TYPE_CHECKS, [TABLE, list(RANGED), len(RANGED)])}


def guard(using: str) -> str:
    """Return whether the guard trigger is 'enabled', 'disabled' or 'missing'."""
    rows = _fetch(using, _GUARD, [TABLE, TRIGGER])
    if not rows:
        return "missing"
    return "enabled" if rows[0][0] in ("O", "A") else "disabled"


def _storage(using: str) -> Iterator[tuple[str, tuple[float, float | None]]]:
    """What differs of the storage parameters; where none is set the server's own value counts."""
    found = dict(_fetch(using, _STORAGE, [TABLE, list(STORAGE)]))
    for name, wanted in STORAGE.items():
        if found.get(name) != wanted:
            yield name, (wanted, found.get(name))


def _is_on(using: str, name: str) -> bool:
    return bool(_value(using, f"SELECT current_setting('{name}')::boolean"))


def _value(using: str, sql: str) -> Any:
    [(value,)] = _fetch(using, sql)
    return value


def _fetch(using: str, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(sql, params)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
