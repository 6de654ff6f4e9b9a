"""Transactions: of callers, and of workers, which the server ends if they are left open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from hipq_django.conf.instances import longest_silence
from hipq_django.exceptions import ConfigurationError


@contextmanager
def write_transaction(using: str) -> Iterator[None]:
    """Open a transaction in which rows that were read stay unchanged until they are written.

    SQLite takes its one write lock first: by BEGIN IMMEDIATE if `transaction_mode` says so,
    otherwise by a statement that writes nothing. PostgreSQL locks rows, see `locked`.
    """
    check_commits(using)
    connection = connections[using]
    with transaction.atomic(using=using):
        if connection.vendor == "sqlite" and not _began_with_lock(connection):
            with connection.cursor() as cursor:
                cursor.execute("UPDATE hipq_queue SET paused = paused WHERE 0")
        yield


def _began_with_lock(connection: Any) -> bool:
    """Return whether the outermost BEGIN took the write lock; without autocommit there was none."""
    return connection.commit_on_exit and connection.transaction_mode in ("IMMEDIATE", "EXCLUSIVE")


@contextmanager
def bounded_transaction(using: str) -> Iterator[None]:
    """Open a `write_transaction` that the server ends if this machine falls silent.

    The server ends the transaction and its locks after the silence that makes a worker count as
    lost. Without this only TCP would end it, after hours. A limit that the server or the session
    already has is left unchanged.
    """
    with _limited(using, _IDLE):
        yield


@contextmanager
def worker_transaction(using: str, *, is_durable: bool = True) -> Iterator[None]:
    """Open a `bounded_transaction` of a worker, which does not wait for locks of others.

    A lock of others ends it, see `is_locked_out`: they may keep it for any time, for example in a
    view that is one transaction. Its commit does not wait for the disk if it need not be
    `is_durable`: a crash of the server may lose it, as a whole, but no durable commit after it.
    """
    limits = f"set_config('lock_timeout', '{LOCK_MILLISECONDS}', true), {_IDLE}"
    with _limited(using, limits if is_durable else f"{_NO_WAIT}, {limits}"):
        yield


def bound_silence(using: str) -> None:
    """Let the server end the current transaction, from now on, if this machine falls silent."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {_IDLE}", [str(_silence_milliseconds(using))])


def bound_lock_waits(using: str, seconds: float) -> None:
    """Let statements of the current transaction wait so long for a lock of others, no longer."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT set_config('lock_timeout', '{seconds}s', true)")


LOOK_SECONDS = 5
"""How long a command that only looks waits for a lock."""


@contextmanager
def looks_only(using: str) -> Iterator[None]:
    """Let no statement of the block wait long for a lock: somebody may be looking for who has it.

    It fails then, see `is_locked_out`. The block is one transaction, and the bound belongs to that:
    behind a pooler others use the same session.
    """
    if connections[using].vendor != "postgresql":  # SQLite has its own, and may begin with its lock
        yield
        return
    with transaction.atomic(using=using):
        bound_lock_waits(using, LOOK_SECONDS)
        yield


def _silence_milliseconds(using: str) -> int:
    return min(int(longest_silence(using) * 1000), MAX_MILLISECONDS)


_NO_WAIT = "set_config('synchronous_commit', 'off', true)"


LOCK_MILLISECONDS = 100
"""How long a worker waits for a lock that is not skipped."""

MAX_MILLISECONDS = (1 << 31) - 1
"""The longest time that PostgreSQL accepts."""

IDLE_LIMIT = "idle_in_transaction_session_timeout"

_IDLE = f"""
    CASE WHEN current_setting('{IDLE_LIMIT}') = '0'
        THEN set_config('{IDLE_LIMIT}', %s, true) END"""


READS_NO_TABLE = "set_config('enable_seqscan', 'off', true)"
"""Keeps this transaction from scanning whole tables.

The server keeps the plan by which it checks a foreign key for as long as a session lasts; made
while the table was small, it would read all of a large one for each new row.
"""


@contextmanager
def _limited(using: str, limits: str) -> Iterator[None]:
    """For this transaction only: behind a pooler other clients use the same session."""
    connection = connections[using]
    is_outermost = not connection.in_atomic_block
    with write_transaction(using):
        if is_outermost and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                params = [str(_silence_milliseconds(using))]
                cursor.execute(f"SELECT {READS_NO_TABLE}, {limits}", params)
        yield


@contextmanager
def statement_transaction(using: str) -> Iterator[None]:
    """Open a transaction for work that is a single statement on PostgreSQL.

    There the statement is its own transaction, with nothing to send before and after it.
    """
    connection = connections[using]
    if connection.vendor == "postgresql" and connection.get_autocommit():
        yield
    else:
        with write_transaction(using):
            yield


def check_commits(using: str) -> None:
    """Raise `ConfigurationError` if the caller manages transactions without Django's `atomic`.

    There nothing could be done after the commit, and on SQLite a savepoint would be a commit.
    """
    connection = connections[using]
    is_open = connection.connection is not None
    autocommits = connection.autocommit if is_open else connection.get_autocommit()
    if not (autocommits or connection.in_atomic_block):
        raise ConfigurationError(
            f"database {using!r}: autocommit is off, by transaction.set_autocommit(False) or "
            "'AUTOCOMMIT'; turn it on and use transaction.atomic()."
        )


def is_aborted(connection: Any) -> bool:
    """Return whether PostgreSQL refuses all statements until the transaction is rolled back."""
    if connection.vendor != "postgresql" or connection.connection is None:
        return False
    return bool(connection.connection.pgconn.transaction_status == _IN_ERROR)


_IN_ERROR = 3
"""Of libpq's states of a transaction."""
