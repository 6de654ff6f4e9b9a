"""Connections for short questions to a server that may not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

ANSWER_SECONDS = 2
"""A server that takes longer counts as one that does not answer."""


@contextmanager
def answering(using: str) -> Iterator[BaseDatabaseWrapper]:
    """Open a connection to PostgreSQL that waits for nothing for more than two seconds.

    It has no part in the transactions of this thread, and none of a pool. What the block does is
    one transaction, which is rolled back. Raise Django's `OperationalError` if the server does not
    answer.
    """
    connection = connections[using].copy()
    options = {**connection.settings_dict["OPTIONS"]}
    options.pop("pool", None)
    milliseconds = ANSWER_SECONDS * 1_000
    options |= {"connect_timeout": ANSWER_SECONDS, "tcp_user_timeout": milliseconds}
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}
    with closing(connection):
        connection.set_autocommit(False)  # behind a pooler others use the same session
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{milliseconds}"])
        yield connection
        connection.rollback()


def answers(using: str) -> bool:
    """Return whether a database answers within two seconds."""
    try:
        with answering(using):
            return True
    except Error:
        return False


@dataclass(frozen=True, slots=True)
class MapRow:
    """What a database says of the shards of an instance."""

    number: int
    count: int
    count_before: int
    first_id: int


def read_map(connection: BaseDatabaseWrapper, instance: str) -> MapRow | None:
    """Return what a database says of the shards of an instance; None if it says nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT number, count, count_before, first_id FROM hipq_shard WHERE instance = %s",
            [instance],
        )
        row = cursor.fetchone()
    return MapRow(*row) if row else None
