"""The rules about the database. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hipq_django.monitoring.doctor.findings import Finding, Level, problem, span, warning
from hipq_django.monitoring.doctor.measurements import Measured, PostgreSQL, TableRows

SKEWED_SECONDS = 5.0
OLD_TRANSACTION_SECONDS = 60.0
VERY_OLD_TRANSACTION_SECONDS = 900.0
LONG_WAIT_SECONDS = 5.0
FEW_ROWS = 10_000
"""Up to this many dead or changed rows are not reported."""
DEAD_SHARE = 0.5
CHANGED_SHARE = 0.5
SHORT_BUSY_TIMEOUT_SECONDS = 5.0


# On every database


def _tables(measured: Measured) -> Iterator[Finding]:
    tables, where = measured.tables, f"database {measured.database}"
    if tables.missing:
        yield problem(
            "missing_indexes",
            where,
            f"indexes or constraints are missing: {', '.join(tables.missing)}.",
            "Statements that need them read whole tables, and constraints are not enforced.",
            _how_to_create(measured),
        )
    if tables.invalid:
        yield problem(
            "invalid_indexes",
            where,
            f"indexes are invalid: {', '.join(tables.invalid)}.",
            "Each write updates them, but no query uses them.",
            f"Run REINDEX INDEX CONCURRENTLY {tables.invalid[0]};",
        )
    if tables.guard != "enabled":
        yield problem(
            "no_guard",
            where,
            f"the trigger hipq_job_guard is {tables.guard}.",
            "Nothing refuses changes of final jobs, or moves that the states do not allow.",
            "Enable it: ALTER TABLE hipq_job ENABLE TRIGGER hipq_job_guard;"
            if tables.guard == "disabled"
            else _how_to_create_guard(measured),
        )


def _how_to_create(measured: Measured) -> str:
    how = (
        f"Create them again: manage.py sqlmigrate hipq 0001 --database {measured.database} "
        "shows how"
    )
    if measured.postgresql is None or "hipq_job_ranges" not in measured.tables.missing:
        return f"{how}."
    # `sqlmigrate` shows a check of the table, which the script then replaces by types of columns.
    return f"{how}; for hipq_job_ranges, the CREATE DOMAIN statements of {_script(measured)} do."


def _how_to_create_guard(measured: Measured) -> str:
    how = f"Create it again: execute the CREATE TRIGGER hipq_job_guard of {_script(measured)}."
    if measured.postgresql is None:
        return how
    return f"{how} If its function is missing too, first execute the CREATE FUNCTION above it."


def _script(measured: Measured) -> str:
    """Return where the SQL is that `sqlmigrate` does not show, and `migrate` does not repeat."""
    vendor = "sqlite" if measured.postgresql is None else "postgresql"
    return f"migrations/sql/0001_guard_{vendor}.sql in the package hipq_django"


def _clock(measured: Measured) -> Iterator[Finding]:
    offset = measured.clock_offset_seconds
    if abs(offset) > SKEWED_SECONDS:
        side = "behind" if offset > 0 else "ahead of"
        yield warning(
            "clock_skew",
            f"database {measured.database}",
            f"this machine's clock is {abs(offset):.1f} s {side} the database's.",
            "Workers correct for it; times in logs, and in your own code, do not agree.",
            "Synchronize the clocks of both machines by NTP.",
        )


def _transaction(measured: Measured) -> Iterator[Finding]:
    if measured.places_of_models:
        yield warning(
            "apart_from_models",
            f"database {measured.database}",
            f"the project's models are written to {', '.join(measured.places_of_models)}.",
            "No transaction holds both: a job stays where what belongs to it is rolled back.",
            "Enqueue after the commit: transaction.on_commit(lambda: task.enqueue(…)). Then "
            "silence the check hipq.W003.",
        )


# PostgreSQL


def _server(measured: Measured) -> Iterator[Finding]:
    if measured.postgresql is not None:
        where = f"database {measured.database}"
        yield from _of_the_server(measured.postgresql, where)
        yield from _on_the_way(measured.postgresql, where)


def _of_the_server(server: PostgreSQL, where: str) -> Iterator[Finding]:
    if server.isolation != "read committed":
        yield problem(
            "isolation",
            where,
            f"transactions run at {server.isolation!r}.",
            "Limits are exact at 'read committed' only; no worker starts otherwise.",
            "Remove 'isolation_level' from OPTIONS, or default_transaction_isolation from the "
            "database or its role.",
        )
    if not server.autovacuum:
        yield problem(
            "autovacuum_off",
            where,
            "autovacuum is off in the server.",
            "Dead rows stay, and every probe for jobs reads them.",
            "Set autovacuum = on and track_counts = on in postgresql.conf, and reload it.",
        )


def _on_the_way(server: PostgreSQL, where: str) -> Iterator[Finding]:
    """Yield what stands between this machine and the server."""
    if server.backends > 1:
        yield warning(
            "pooler",
            where,
            "a connection pooler in transaction mode is in front of the database.",
            "LISTEN, server-side cursors, and all else that belongs to a session do not work.",
            "Give the workers a direct connection, or a pool in session mode; for web processes "
            "set DISABLE_SERVER_SIDE_CURSORS.",
        )
    if not server.notices_dead_peer:
        yield warning(
            "dead_peer",
            where,
            "OPTIONS has neither tcp_user_timeout nor keepalives_idle.",
            "If the network drops a connection silently, handlers and requests wait for "
            "hours. Workers set these options for their own connections only.",
            "Set OPTIONS: 'connect_timeout': 10, 'keepalives_idle': 10, 'keepalives_interval': 5, "
            "'keepalives_count': 3, 'tcp_user_timeout': 30000.",
        )


def _transactions(measured: Measured) -> Iterator[Finding]:
    for found in measured.postgresql.transactions if measured.postgresql else ():
        if found.seconds < OLD_TRANSACTION_SECONDS:
            continue
        is_very_old = found.seconds >= VERY_OLD_TRANSACTION_SECONDS
        yield Finding(
            Level.PROBLEM if is_very_old else Level.WARNING,
            "old_transaction",
            f"database {measured.database}",
            f"{_holder(found.pid)} ({found.application or 'no name'}, {found.state}) has a "
            f"transaction open for {span(found.seconds)}.",
            "While it is open, dead rows cannot be removed from any table, and queues get slower.",
            f"End the program that runs it, or the session: {_how_to_end(found.pid)}",
        )


def _waits(measured: Measured) -> Iterator[Finding]:
    for found in measured.postgresql.waits if measured.postgresql else ():
        if found.seconds >= LONG_WAIT_SECONDS:
            yield problem(
                "lock_wait",
                f"database {measured.database}",
                f"process {found.pid} has waited for a lock for {span(found.seconds)}; "
                f"it is held by {_holders(found.blockers)}.",
                "If it is a worker or a request that enqueues, it stands still.",
                _look_and_end(found.blockers),
            )


def locked_tables(measured: Measured) -> list[Finding]:
    """Return what is known where a table is locked, so that nothing else can be examined."""
    locked = problem(
        "locked_table",
        f"database {measured.database}",
        f"a table cannot be read; it is locked by {_holders(measured.lockers)}.",
        "Nothing that needs it goes on, and nothing else was examined.",
        _look_and_end(measured.lockers),
    )
    return [locked, *_waits(measured), *_transactions(measured)]


def _holder(pid: int | str) -> str:
    """Name a session by its process; a prepared transaction has none."""
    return f"process {pid}" if pid else "a prepared transaction"


def _holders(pids: Sequence[int]) -> str:
    return ", ".join(map(_holder, pids)) or "nobody any more"


def _look_and_end(pids: Sequence[int]) -> str:
    first = pids[0] if pids else "pid"
    return (
        "See in pg_stat_activity, or pg_prepared_xacts, what it does; if needed, end it: "
        f"{_how_to_end(first)}"
    )


def _how_to_end(pid: int | str) -> str:
    return f"SELECT pg_terminate_backend({pid});" if pid else "ROLLBACK PREPARED …;"


def _storage(measured: Measured) -> Iterator[Finding]:
    storage = measured.postgresql.storage if measured.postgresql else None
    if storage:
        differing = ", ".join(
            f"{name} is {'the default' if found is None else f'{found:g}'}, not {wanted:g}"
            for name, (wanted, found) in storage.items()
        )
        values = ", ".join(f"{name} = {wanted:g}" for name, (wanted, _) in storage.items())
        yield warning(
            "storage",
            "table hipq_job",
            f"{differing}.",
            "Rows of a queue change often: vacuum must run early, and pages need room.",
            f"Unless you set them on purpose: ALTER TABLE hipq_job SET ({values});",
        )


def _rows(measured: Measured) -> Iterator[Finding]:
    for table in measured.postgresql.tables if measured.postgresql else ():
        if not table.autovacuum:
            yield problem(
                "autovacuum_off",
                f"table {table.name}",
                "autovacuum is off for this table.",
                "Dead rows stay, and every probe for jobs reads them.",
                f"ALTER TABLE {table.name} RESET (autovacuum_enabled);",
            )
        yield from _row_counts(table)


def _row_counts(table: TableRows) -> Iterator[Finding]:
    if table.dead > FEW_ROWS + DEAD_SHARE * table.live:
        yield warning(
            "dead_rows",
            f"table {table.name}",
            f"{table.dead:,} dead rows beside {table.live:,} live ones.",
            "Every probe for jobs reads past them.",
            f"Look for an old transaction, then VACUUM (ANALYZE) {table.name};",
        )
    if table.changed > FEW_ROWS + CHANGED_SHARE * table.live:
        yield warning(
            "stale_statistics",
            f"table {table.name}",
            f"{table.changed:,} rows were changed since its statistics were made.",
            "The planner may choose a bad plan, in your own queries too.",
            f"ANALYZE {table.name};",
        )


# SQLite


def _sqlite(measured: Measured) -> Iterator[Finding]:
    sqlite = measured.sqlite
    if sqlite is None:
        return
    why = "Several processes wait for each other, or meet 'database is locked'."
    for code, is_wrong, what, what_to_do in (
        (
            "journal_mode",
            sqlite.journal_mode not in ("wal", "memory"),
            f"the journal mode is {sqlite.journal_mode!r}, not 'wal'.",
            "Set OPTIONS['init_command'] = 'PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL'.",
        ),
        (
            "transaction_mode",
            sqlite.transaction_mode != "IMMEDIATE",
            f"the transaction mode is {sqlite.transaction_mode!r}, not 'IMMEDIATE'.",
            "Set OPTIONS['transaction_mode'] = 'IMMEDIATE'.",
        ),
        (
            "busy_timeout",
            sqlite.busy_timeout_seconds < SHORT_BUSY_TIMEOUT_SECONDS,
            f"a statement waits {sqlite.busy_timeout_seconds:g} s for the write lock.",
            "Set OPTIONS['timeout'] = 20.",
        ),
    ):
        if is_wrong:
            where = f"database {measured.database}"
            yield warning(code, where, what, why, what_to_do)


DATABASE_RULES: tuple[Callable[[Measured], Iterator[Finding]], ...] = (
    _tables,
    _clock,
    _transaction,
    _server,
    _transactions,
    _waits,
    _storage,
    _rows,
    _sqlite,
)
