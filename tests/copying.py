"""Many rows by one statement, for what has to hold however many there are."""

from __future__ import annotations

from django.db import connection
from django.db.models import Model


def copy(row: Model, number: int, **changes: str) -> None:
    """Insert so many copies of a row; in the SQL of `changes`, by column, n numbers them."""
    fields = [field for field in row._meta.concrete_fields if not field.primary_key]
    columns = [str(field.column) for field in fields]
    values = [changes.get(column, column) for column in columns]
    table = row._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE numbers(n) AS "
            "(SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < %s) "
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"SELECT {', '.join(values)} FROM {table}, numbers WHERE id = %s ORDER BY n",
            [number, row.pk],
        )


def analyze() -> None:
    """Let the database know how many rows there are now."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
