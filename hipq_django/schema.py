"""What the database enforces, and is told, beyond what Django's models say. Used by migrations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from hipq_django.states import MOVES, State

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

TABLE = "hipq_job"
TRIGGER = "hipq_job_guard"
MESSAGE = (
    "hipq: a final job never changes, moves go as the state machine says, attempts only grow, "
    "queue and type stay"
)

# A queue's rows die young: let vacuum come early and work fast, and leave room for the new
# version of a row on its page.
STORAGE = {
    "fillfactor": 85,
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_threshold": 500,
    "autovacuum_vacuum_cost_limit": 2000,
    "autovacuum_vacuum_cost_delay": 1,
    "autovacuum_vacuum_insert_scale_factor": 0.02,
    "autovacuum_analyze_scale_factor": 0.02,
}


def missing_migrations(using: str) -> list[str]:
    """Return the migrations of hipq_django that the database lacks, the first one first."""
    executor = MigrationExecutor(connections[using])
    plan = executor.migration_plan(list(executor.loader.graph.leaf_nodes("hipq")))
    return [migration.name for migration, _ in plan if migration.app_label == "hipq"]


def install_guard(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Create the trigger that refuses every move but those of `states.MOVES`.

    A later migration that makes SQLite rebuild the table must install it again.
    """
    del apps
    for statement in _GUARDS.get(schema_editor.connection.vendor, []):
        schema_editor.execute(statement, params=None)


def remove_guard(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the trigger where it is there: so it can be made anew by migrating back and forth."""
    del apps
    for statement in _DROPS.get(schema_editor.connection.vendor, []):
        schema_editor.execute(statement, params=None)


def set_storage(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Set the storage parameters of the job table; PostgreSQL only."""
    del apps
    values = ", ".join(f"{name} = {value}" for name, value in STORAGE.items())
    on_postgresql(schema_editor, f"ALTER TABLE {TABLE} SET ({values})")


def reset_storage(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Give the job table the server's own storage parameters again."""
    del apps
    on_postgresql(schema_editor, f"ALTER TABLE {TABLE} RESET ({', '.join(STORAGE)})")


def on_postgresql(schema_editor: BaseDatabaseSchemaEditor, statement: str) -> None:
    """Execute a statement where the database is PostgreSQL."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(statement, params=None)


def _forbidden(moves: str) -> str:
    """The condition on OLD and NEW under which an update is refused; `moves` is what may not be.

    It stands in the trigger's WHEN, so that an allowed update calls no function; and it is short,
    because PostgreSQL prepares it anew for every statement.
    """
    return (
        "NEW.attempt < OLD.attempt OR NEW.create_time <> OLD.create_time "
        "OR NEW.queue_id <> OLD.queue_id OR NEW.job_type_id <> OLD.job_type_id "
        f"OR OLD.state || '>' || NEW.state {moves}"
    )


_ALLOWED = [
    f"{old.value}>{new.value}"
    for old, news in MOVES.items()
    if old is not State.FINAL
    for new in (old, *sorted(news))
]
# As one value, because that is read faster than a list of values.
_NOT_IN_ARRAY = f"<> ALL ('{{{','.join(_ALLOWED)}}}'::text[])"
_NOT_IN_LIST = f"NOT IN {tuple(_ALLOWED)}"

_GUARDS = {
    "postgresql": [
        f"""
        CREATE OR REPLACE FUNCTION {TRIGGER}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = format(
                '{MESSAGE} (job %s, %s to %s)', OLD.id, OLD.state, NEW.state);
        END $$
        """,
        f"CREATE TRIGGER {TRIGGER} BEFORE UPDATE ON {TABLE} FOR EACH ROW "
        f"WHEN ({_forbidden(_NOT_IN_ARRAY)}) EXECUTE FUNCTION {TRIGGER}()",
    ],
    "sqlite": [
        f"CREATE TRIGGER {TRIGGER} BEFORE UPDATE ON {TABLE} FOR EACH ROW "
        f"WHEN ({_forbidden(_NOT_IN_LIST)}) BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END",
    ],
}
_DROPS = {
    "postgresql": [
        f"DROP TRIGGER IF EXISTS {TRIGGER} ON {TABLE}",
        f"DROP FUNCTION IF EXISTS {TRIGGER}()",
    ],
    "sqlite": [f"DROP TRIGGER IF EXISTS {TRIGGER}"],
}
