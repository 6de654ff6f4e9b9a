"""The only place that knows how databases differ."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import (
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
    transaction,
)
from django.db.models import F, Lookup

from hipq_django.conf import longest_silence
from hipq_django.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import QuerySet, TextChoices
    from django.db.models.sql.compiler import SQLCompiler

    from hipq_django.states import Outcome, State


@contextmanager
def write_transaction(using: str) -> Iterator[None]:
    """Open a transaction in which what was read stays true until it is written.

    SQLite takes its one write lock first: BEGIN IMMEDIATE where `transaction_mode` says so, else
    by a statement that writes nothing. PostgreSQL locks rows, see `locked`.
    """
    check_commits(using)
    connection = connections[using]
    with transaction.atomic(using=using):
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("UPDATE hipq_queue SET paused = paused WHERE 0")
        yield


@contextmanager
def worker_transaction(using: str) -> Iterator[None]:
    """Open a `write_transaction` of a worker, which ends by itself where it could last.

    What others have locked ends it, see `is_locked_out`: they may keep a lock for as long as they
    like, a view that does all in one transaction say. And it ends with the machine that opened it:
    after as long a silence as makes a worker count as lost, the server ends the transaction and
    its locks. Without that it is left to TCP, which takes hours. A limit that the server or the
    session has already is left as it is.
    """
    connection = connections[using]
    is_outermost = not connection.in_atomic_block
    with write_transaction(using):
        if is_outermost and connection.vendor == "postgresql":
            milliseconds = min(int(longest_silence(using) * 1000), MAX_MILLISECONDS)
            with connection.cursor() as cursor:
                cursor.execute(_LIMITS, [str(LOCK_MILLISECONDS), str(milliseconds)])
        yield


LOCK_MILLISECONDS = 100
"""How long a worker waits for a lock that is not passed over."""

MAX_MILLISECONDS = (1 << 31) - 1
"""The most that PostgreSQL takes for a time."""

IDLE_LIMIT = "idle_in_transaction_session_timeout"

_LIMITS = f"""
    SELECT set_config('lock_timeout', %s, true), CASE WHEN current_setting('{IDLE_LIMIT}') = '0'
        THEN set_config('{IDLE_LIMIT}', %s, true) END"""
"""For this transaction only: behind a pooler the session is the next one's too."""

_LOCK_NOT_AVAILABLE = "55P03"


def is_locked_out(error: BaseException) -> bool:
    """Return whether a statement was ended because it would have waited for somebody's lock.

    This is no outage: everything else may go on.
    """
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return isinstance(error, OperationalError) and state == _LOCK_NOT_AVAILABLE


@contextmanager
def statement_transaction(using: str) -> Iterator[None]:
    """Open a transaction for what is one statement on PostgreSQL.

    There it is a transaction of its own, with nothing to send before and after it.
    """
    connection = connections[using]
    if connection.vendor == "postgresql" and connection.get_autocommit():
        yield
    else:
        with write_transaction(using):
            yield


def locked(
    rows: QuerySet[Any], *, skip_locked: bool = False, to_delete: bool = False
) -> QuerySet[Any]:
    """Return `rows` with their row locks, where the database has any; no row that they join.

    NO KEY, because an enqueue holds a KEY SHARE lock on the queue through its foreign key and
    must not wait for a scheduler. Who is going `to_delete` the rows does wait for such a lock, or
    skips them.
    """
    features = connections[rows.db].features
    if not features.has_select_for_update:
        return rows
    return rows.select_for_update(
        skip_locked=skip_locked and features.has_select_for_update_skip_locked,
        of=("self",) if features.has_select_for_update_of else (),
        no_key=features.has_select_for_no_key_update and not to_delete,
    )


def kept(rows: QuerySet[Any]) -> Any:
    """Return the first of `rows`, or None; nobody deletes it before the transaction ends.

    On PostgreSQL by the weak lock of a foreign key. Whoever waits for a live job, and finds a final
    one, has locked that as well; to wait for it in turn would be a deadlock.
    """
    connection = connections[rows.db]
    if connection.vendor != "postgresql":
        return locked(rows).first()
    sql, params = rows[:1].query.get_compiler(rows.db).as_sql()
    manager = rows.model._default_manager.using(rows.db)
    return next(iter(manager.raw(f"{sql} FOR KEY SHARE", params)), None)


class _LiteralIn(Lookup):
    """`column IN (…)` with literals; a lookup, because other conditions are compared with 1."""

    lookup_name = "literal_in"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """Write the literals as they stand in the condition of the index."""
        column, params = self.process_lhs(compiler, connection)
        return f"{column} IN ({self.rhs})", params


def state_in(*states: State) -> Lookup[Any]:
    """Return the condition `state IN (…)` with literals.

    SQLite, and PostgreSQL's generic plans, match a partial index by literals only, not by
    parameters.
    """
    return _LiteralIn(F("state"), _literals(states))


def outcome_in(*outcomes: Outcome) -> Lookup[Any]:
    """Return the condition `outcome IN (…)` with literals, as `state_in`."""
    return _LiteralIn(F("outcome"), _literals(outcomes))


def _literals(words: Iterable[TextChoices]) -> str:
    return ", ".join(f"'{word.value}'" for word in words)


def takes_writers_together(using: str) -> bool:
    """Return whether two transactions may write at the same moment: where rows have locks."""
    return connections[using].features.has_select_for_update


def max_rows_per_statement(using: str) -> int:
    """Return how many rows one statement may name by parameters."""
    limit = connections[using].features.max_query_params
    return min(500, limit // 3) if limit else 500


def isolation_level(using: str) -> str:
    """Return the isolation level of a PostgreSQL session."""
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        return str(cursor.fetchone()[0])


RowVersions = tuple[str, ...]


def row_versions(using: str, instance: str, job_type: str) -> RowVersions | None:
    """Return what tells the present versions of a job type's row and its queue's from all others.

    One short query instead of one for all their fields. None where there is no such job type, or
    where the database does not tell.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.xmin::text, t.ctid::text, q.xmin::text, q.ctid::text "
            "FROM hipq_jobtype t JOIN hipq_queue q ON q.id = t.queue_id "
            "WHERE t.instance = %s AND t.name = %s",
            [instance, job_type],
        )
        row: RowVersions | None = cursor.fetchone()
    return row


_REFUSALS = ("22", "23", "54")
"""The classes of SQLSTATE for values and batches that are refused: data, constraints, limits."""
_MORE_REFUSALS = ("53200", "53400", "XX000")
"""Out of memory, over a configured limit, and PostgreSQL's word for an allocation too large."""


def is_outage(error: BaseException) -> bool:
    """Return whether the database, or the way to it, is at fault, and not what was asked of it."""
    at_fault = isinstance(error, OperationalError | InterfaceError)
    return at_fault and not (is_refusal(error) or is_locked_out(error))


def is_refusal(error: BaseException) -> bool:
    """Return whether what was to be written is at fault, and not the database or the way to it.

    What raises before it reaches the database, a value that cannot be encoded say, is no outage.
    """
    if not isinstance(error, Error):
        return True
    state = getattr(error.__cause__, "sqlstate", None)
    if state is None:
        return isinstance(error, DataError | IntegrityError)
    return str(state).startswith(_REFUSALS) or state in _MORE_REFUSALS


def has_psycopg(using: str) -> bool:
    """Return whether a PostgreSQL database is reached through psycopg 3, as it has to be."""
    driver: Any = connections[using]
    return bool(driver.Database.__name__ == "psycopg")


def check_driver(using: str) -> None:
    """Raise `ConfigurationError` where PostgreSQL is reached through another driver."""
    if connections[using].vendor == "postgresql" and not has_psycopg(using):
        raise ConfigurationError(
            f"database {using!r} is reached through psycopg2, which hipq_django does not support: "
            "install psycopg 3, which Django prefers."
        )


def check_commits(using: str) -> None:
    """Raise `ConfigurationError` where the caller manages transactions without Django's `atomic`.

    Nothing could be done after the commit there, and on SQLite a savepoint would be a commit.
    """
    connection = connections[using]
    if not (connection.in_atomic_block or connection.get_autocommit()):
        raise ConfigurationError(
            f"database {using!r}: autocommit is off, by transaction.set_autocommit(False) or "
            "'AUTOCOMMIT'; turn it on and use transaction.atomic()."
        )


def check_isolation(using: str) -> None:
    """Raise `ConfigurationError` where the isolation level would make limits inexact."""
    if connections[using].vendor != "postgresql":
        return
    level = isolation_level(using)
    if level != "read committed":
        raise ConfigurationError(
            f"database {using!r} runs transactions at {level!r}: exact limits need 'read "
            "committed', in which each statement sees what was committed before it; remove "
            "'isolation_level' from its OPTIONS."
        )


def in_one_line(error: Exception) -> str:
    """Return what a driver says of an error, without its hints and repetitions."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
