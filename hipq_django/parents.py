"""The check that each job has its queue and its type, once for each INSERT; PostgreSQL only.

Foreign keys check row by row, which took half the time of a bulk enqueue. Used by a migration.

As with a foreign key, the check is made with the rights of the tables' owner: to lock a parent
needs the right to update it, which a role that only enqueues need not have. What it reads is in the
schema of the tables, whatever the search path of the session. Nothing is checked in a restore of
data only: without foreign keys pg_dump does not know that jobs come last. It is told by the empty
search path that all dumps set, with which no statement of ours would find its tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.schema import TABLE, on_postgresql

if TYPE_CHECKING:
    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

PARENTS = {"queue_id": "hipq_queue", "job_type_id": "hipq_jobtype"}


def check_by_statement(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Put triggers in the place of the foreign keys; the guard keeps jobs from changing parents."""
    del apps
    for statement in (*_DROP_FOREIGN_KEYS, *_CHECKS, *map(_in_schema, _FUNCTIONS)):
        on_postgresql(schema_editor, statement)


def check_by_row(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Put the foreign keys back."""
    del apps
    for statement in (*_DROP_CHECKS, *_FOREIGN_KEYS):
        on_postgresql(schema_editor, statement)


_DROP_FOREIGN_KEYS = [
    f"""
    DO $$ DECLARE foreign_key name; BEGIN
        FOR foreign_key IN SELECT conname FROM pg_constraint
            WHERE conrelid = '{TABLE}'::regclass AND contype = 'f'
        LOOP EXECUTE format('ALTER TABLE {TABLE} DROP CONSTRAINT %I', foreign_key); END LOOP;
    END $$
    """
]
_FOREIGN_KEYS = [
    f"ALTER TABLE {TABLE} ADD FOREIGN KEY ({column}) REFERENCES {parent} (id) "
    "DEFERRABLE INITIALLY DEFERRED"
    for column, parent in PARENTS.items()
]
_FUNCTIONS = (f"{TABLE}_parents", f"{TABLE}_children")


def _in_schema(function: str) -> str:
    """Return the statement that ties a function to the schema that the tables are in now."""
    return f"""
        DO $$ DECLARE home name; BEGIN
            SELECT relnamespace::regnamespace INTO home FROM pg_class
                WHERE oid = '{TABLE}'::regclass;
            EXECUTE format(
                'ALTER FUNCTION {function}() SET search_path = pg_catalog, %s, pg_temp', home);
        END $$
    """


# KEY SHARE, as foreign keys take it: a parent that is being deleted is waited for.
_CHECKS = [
    f"""
    CREATE FUNCTION {TABLE}_parents() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE job record;
    BEGIN
        FOR job IN SELECT DISTINCT queue_id, job_type_id FROM fresh LOOP
            PERFORM 1 FROM hipq_queue q, hipq_jobtype t
                WHERE q.id = job.queue_id AND t.id = job.job_type_id FOR KEY SHARE;
            IF NOT FOUND THEN
                RAISE foreign_key_violation USING
                    MESSAGE = 'hipq: a job has no queue or no type',
                    HINT = 'In a fixture, load queues and job types before their jobs.';
            END IF;
        END LOOP;
        RETURN NULL;
    END $$
    """,
    f"CREATE TRIGGER {TABLE}_parents AFTER INSERT ON {TABLE} REFERENCING NEW TABLE AS fresh "
    f"FOR EACH STATEMENT WHEN (current_setting('search_path') <> '') "
    f"EXECUTE FUNCTION {TABLE}_parents()",
    f"""
    CREATE FUNCTION {TABLE}_children() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE needed boolean;
    BEGIN
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM {TABLE} WHERE %I = $1)', TG_ARGV[0])
            INTO needed USING OLD.id;
        IF needed THEN
            RAISE foreign_key_violation USING MESSAGE = format(
                'hipq: row %s of %I is still needed by jobs', OLD.id, TG_TABLE_NAME);
        END IF;
        RETURN NULL;
    END $$
    """,
    *[
        f"CREATE TRIGGER {TABLE}_children AFTER DELETE OR UPDATE OF id ON {parent} "
        f"FOR EACH ROW EXECUTE FUNCTION {TABLE}_children('{column}')"
        for column, parent in PARENTS.items()
    ],
]
_DROP_CHECKS = [
    f"DROP FUNCTION {TABLE}_parents() CASCADE",
    f"DROP FUNCTION {TABLE}_children() CASCADE",
]
