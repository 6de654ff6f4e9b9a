"""Runs the SQL beside a migration. A published script never changes: it is what was executed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from hipq_django.database.kinds import engine_kind

SEPARATOR = "\n\n-- next statement\n\n"


def script(
    name: str, of: str | None = __package__
) -> Callable[[Any, BaseDatabaseSchemaEditor], None]:
    """Return what executes `sql/<name>_<vendor>.sql`, where there is one for the database.

    `of` is the package of migrations beside which the folder `sql` is.
    """

    def execute(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
        del apps
        file = files(of or "") / "sql" / f"{name}_{schema_editor.connection.vendor}.sql"
        if file.is_file():
            for statement in file.read_text().split(SEPARATOR):
                schema_editor.execute(statement, params=None)

    return execute


def functions(
    name: str, *, are_first: bool = False
) -> Callable[[Any, BaseDatabaseSchemaEditor], None]:
    """Return what executes a script about the functions that hot statements call.

    A database that is migrated for the first time with ENGINE "orm" gets none, and none later: it
    has all of one version, or none.
    """

    def execute(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
        connection = schema_editor.connection
        is_orm = engine_kind(connection.alias) == "orm"
        if not is_orm if are_first else _has_functions(connection):
            script(name)(apps, schema_editor)

    return execute


def _has_functions(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_proc WHERE proname ~ '^hipq_probe_queues_[0-9a-f]{8}$' "
            "AND pg_function_is_visible(oid)"
        )
        return cursor.fetchone() is not None


def without_foreign_keys(table: str) -> Callable[[Any, BaseDatabaseSchemaEditor], None]:
    """Return what leaves the foreign keys of a new table to triggers, on PostgreSQL.

    There they would cost each insert a look-up and a lock for each of them, and each update a look
    at the old row. Django creates them at the very end of the migration.
    """

    def execute(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
        del apps
        if schema_editor.connection.vendor == "postgresql":
            start = f"ALTER TABLE {schema_editor.quote_name(table)} ADD CONSTRAINT"
            schema_editor.deferred_sql = [
                sql
                for sql in schema_editor.deferred_sql
                if not (str(sql).startswith(start) and " FOREIGN KEY " in str(sql))
            ]

    return execute
