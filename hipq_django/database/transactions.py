"""Transactions: of callers, and of workers, which end by themselves where they could last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from hipq_django.conf.instances import longest_silence
from hipq_django.exceptions import ConfigurationError


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
def bounded_transaction(using: str) -> Iterator[None]:
    """Open a `write_transaction` of a process of ours, which ends with the machine that opened it.

    After as long a silence as makes a worker count as lost, the server ends the transaction and
    its locks. Without that it is left to TCP, which takes hours. A limit that the server or the
    session has already is left as it is.
    """
    with _limited(using, _IDLE):
        yield


@contextmanager
def worker_transaction(using: str) -> Iterator[None]:
    """Open a `bounded_transaction` of a worker, which does not wait for what others have locked.

    That ends it, see `is_locked_out`: they may keep a lock for as long as they like, a view that
    does all in one transaction say.
    """
    with _limited(using, f"set_config('lock_timeout', '{LOCK_MILLISECONDS}', true), {_IDLE}"):
        yield


LOCK_MILLISECONDS = 100
"""How long a worker waits for a lock that is not passed over."""

MAX_MILLISECONDS = (1 << 31) - 1
"""The most that PostgreSQL takes for a time."""

IDLE_LIMIT = "idle_in_transaction_session_timeout"

_IDLE = f"""
    CASE WHEN current_setting('{IDLE_LIMIT}') = '0'
        THEN set_config('{IDLE_LIMIT}', %s, true) END"""


READS_NO_TABLE = "set_config('enable_seqscan', 'off', true)"
"""Keeps this transaction from reading tables from end to end.

The server keeps the plan by which it checks a foreign key for as long as a session lasts; made
while the table was small, it would read all of a large one for each new row.
"""


@contextmanager
def _limited(using: str, limits: str) -> Iterator[None]:
    """For this transaction only: behind a pooler the session is the next one's too."""
    connection = connections[using]
    is_outermost = not connection.in_atomic_block
    with write_transaction(using):
        if is_outermost and connection.vendor == "postgresql":
            milliseconds = min(int(longest_silence(using) * 1000), MAX_MILLISECONDS)
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {READS_NO_TABLE}, {limits}", [str(milliseconds)])
        yield


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


def check_commits(using: str) -> None:
    """Raise `ConfigurationError` where the caller manages transactions without Django's `atomic`.

    Nothing could be done after the commit there, and on SQLite a savepoint would be a commit.
    """
    connection = connections[using]
    is_open = connection.connection is not None
    autocommits = connection.autocommit if is_open else connection.get_autocommit()
    if not (autocommits or connection.in_atomic_block):
        raise ConfigurationError(
            f"database {using!r}: autocommit is off, by transaction.set_autocommit(False) or "
            "'AUTOCOMMIT'; turn it on and use transaction.atomic()."
        )
