"""Sequences of ids on PostgreSQL: what they gave last, and where they go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connections


@dataclass(frozen=True, slots=True)
class Sequence:
    """The sequence of a table's ids: the highest id that there ever was, and the step."""

    name: str
    last: int
    step: int


def locked_sequences(using: str, tables: Iterable[str]) -> list[Sequence]:
    """Return the sequences of tables; until the transaction ends, nobody else takes an id.

    Wait for the transactions that have taken one.
    """
    return [_locked_sequence(using, table) for table in sorted(tables)]


_LAST = """
    SELECT GREATEST(
        s.last_value - CASE WHEN s.is_called THEN 0 ELSE p.seqincrement END,
        (SELECT MAX(id) FROM {table}), 0
    ), p.seqincrement
    FROM {name} s, pg_sequence p WHERE p.seqrelid = %s::regclass"""


def _locked_sequence(using: str, table: str) -> Sequence:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table])
        [(name,)] = cursor.fetchall()
        cursor.execute(f"ALTER SEQUENCE {name} NO CYCLE")  # as it is: only the lock counts
        cursor.execute(_LAST.format(name=name, table=table), [name])
        [(last, step)] = cursor.fetchall()
    return Sequence(name, last, step)


def go_on(using: str, sequence: Sequence, start: int, step: int) -> None:
    """Let a sequence give `start` next, and then each `step`-th number."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            f"ALTER SEQUENCE {sequence.name} INCREMENT BY {step:d} RESTART WITH {start:d}"
        )
