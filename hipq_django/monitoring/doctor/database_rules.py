"""The rules about the database. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hipq_django.monitoring.doctor.findings import Finding, problem, warning
from hipq_django.monitoring.doctor.measurements import Measured

SKEWED_SECONDS = 5.0


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


def _indexes(measured: Measured) -> Iterator[Finding]:
    invalid = measured.postgresql.invalid_indexes
    if invalid:
        yield problem(
            "invalid_indexes",
            f"database {measured.database}",
            f"indexes are invalid: {', '.join(invalid)}.",
            "Each write updates them, but no query uses them.",
            f"Run REINDEX INDEX CONCURRENTLY {invalid[0]};",
        )


def _autovacuum(measured: Measured) -> Iterator[Finding]:
    why = "Dead rows stay, and every probe for jobs reads them."
    if not measured.postgresql.has_autovacuum:
        yield problem(
            "autovacuum_off",
            f"database {measured.database}",
            "autovacuum is off in the server.",
            why,
            "Set autovacuum = on and track_counts = on in postgresql.conf, and reload it.",
        )
    for table in measured.postgresql.tables_without_autovacuum:
        yield problem(
            "autovacuum_off",
            f"table {table}",
            "autovacuum is off for this table.",
            why,
            f"ALTER TABLE {table} RESET (autovacuum_enabled);",
        )


def _dead_peer(measured: Measured) -> Iterator[Finding]:
    if not measured.postgresql.notices_dead_peer:
        yield warning(
            "dead_peer",
            f"database {measured.database}",
            "OPTIONS has neither tcp_user_timeout nor keepalives_idle.",
            "If the network drops a connection silently, handlers and requests wait for "
            "hours. Workers set these options for their own connections only.",
            "Set OPTIONS: 'connect_timeout': 10, 'keepalives_idle': 10, 'keepalives_interval': 5, "
            "'keepalives_count': 3, 'tcp_user_timeout': 30000.",
        )


DATABASE_RULES: tuple[Callable[[Measured], Iterator[Finding]], ...] = (
    _clock,
    _indexes,
    _autovacuum,
    _dead_peer,
)
