"""hipq_job as a table of tables on PostgreSQL: one partition for each queue that has its own.

Everything about hipq_job is read from the catalog and made anew from there, so that later
migrations need not be repeated here. Whoever changes it has called `lock`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.db import connections

JOBS, REST, ANSWERS = "hipq_job", "hipq_job_rest", "hipq_answer"
WAIT_SECONDS = 2


class _Index(NamedTuple):
    name: str
    of_rest: str
    """The name of its part in the rest, as SQL; of a plain table, that it will have there."""
    definition: str
    is_unique: bool
    is_primary: bool


class _Sequence(NamedTuple):
    options: str
    last_value: int
    is_called: bool


class Partitions:
    """The table of jobs in one database, in the current transaction."""

    def __init__(self, using: str) -> None:
        """`using` is an alias of a PostgreSQL that was migrated."""
        self.using = using

    # What there is

    @property
    def is_partitioned(self) -> bool:
        """Whether hipq_job is a table of tables."""
        if not self._is_postgresql:
            return False
        return bool(self._rows(f"SELECT 1 FROM pg_class WHERE {_IS_JOBS} AND relkind = 'p'"))

    @property
    def is_migrated(self) -> bool:
        """Whether there is a hipq_job."""
        return self._is_postgresql and bool(self._rows(f"SELECT 1 FROM pg_class WHERE {_IS_JOBS}"))

    @property
    def own_tables(self) -> dict[int, str]:
        """The tables of queues, as SQL names them, by the ids of their queues."""
        if not self.is_partitioned:
            return {}
        found = (
            (re.search(r"IN \('(\d+)'\)", bound), name) for name, bound in self._rows(_PARTITIONS)
        )
        return {int(bound[1]): name for bound, name in found if bound}

    def references(self) -> list[str]:
        """Return the columns of others whose foreign keys name jobs: 'orders.job_id'."""
        return [f"{table}.{column}" for table, column, *_ in self._keys() if table != ANSWERS]

    def has(self, table: str) -> bool:
        """Return whether a table, a view or an index has this name where hipq_job is."""
        return bool(self._rows(_HAS, [table]))

    def count(self, table: str = JOBS) -> int:
        """Return how many jobs a table has."""
        [(number,)] = self._rows(f"SELECT count(*) FROM {table}")
        return int(number)

    # What is changed

    def lock(self) -> None:
        """Let nobody else use jobs and answers; wait for those who do, but not for long.

        What is made from now on belongs to the owner of hipq_job. SQLite has no such table.
        """
        if not self._is_postgresql:
            return
        self._do(
            f"SELECT set_config('lock_timeout', '{WAIT_SECONDS}s', true)",
            "SELECT set_config('role', pg_get_userbyid(relowner), true) FROM pg_class"
            f" WHERE oid = {_oid(JOBS)}",
            f"LOCK TABLE {JOBS}, {ANSWERS} IN ACCESS EXCLUSIVE MODE",
        )

    def divide(self) -> None:
        """Make a plain hipq_job a table of tables: its rows become those of the rest."""
        indexes, triggers, ids = self._indexes(), self._triggers(JOBS), self._sequence()
        keys = [key for key in self._keys() if key[0] == ANSWERS]
        self._do(
            *(f"ALTER TABLE {ANSWERS} DROP CONSTRAINT {name}" for _, _, name, _ in keys),
            *(f"DROP TRIGGER {name} ON {JOBS}" for name, _ in triggers),
            *(_drop(index, JOBS) for index in indexes if index.is_unique),
            *(f"ALTER INDEX {i.name} RENAME TO {i.of_rest}" for i in indexes if not i.is_unique),
        )
        grants = [*self._grants(JOBS, "TABLE"), *self._uses_of_ids()]
        self._do(
            f"ALTER TABLE {JOBS} ALTER COLUMN id DROP IDENTITY",
            f"ALTER TABLE {JOBS} RENAME TO {REST}",
            f"CREATE TABLE {JOBS} (LIKE {REST} INCLUDING ALL EXCLUDING INDEXES"
            " EXCLUDING IDENTITY EXCLUDING STATISTICS) PARTITION BY LIST (queue_id)",
            f"CREATE SEQUENCE {JOBS}_id_seq {ids.options} OWNED BY {JOBS}.id",
            f"ALTER TABLE {JOBS} ALTER COLUMN id SET DEFAULT nextval('{JOBS}_id_seq')",
            *map(_with_queue, indexes),
            f"ALTER TABLE {JOBS} ATTACH PARTITION {REST} DEFAULT",
            *(definition for _, definition in triggers),
            _KEEPING_QUEUE,
            *(sql.replace("{home}", self._home) for sql in _KEEPING_JOBS),
            *(_answer_trigger(name, definition) for _, _, name, definition in keys),
            *grants,
        )
        self._go_on(ids)

    def add_table(self, table: str, queue_id: int) -> None:
        """Give a queue a table of its own, and move its jobs there."""
        name = connections[self.using].ops.quote_name(table)
        self._do(
            f"CREATE TABLE {name} (LIKE {REST} INCLUDING ALL EXCLUDING INDEXES){self._storage()}",
            f"ALTER TABLE {REST} DISABLE TRIGGER USER",  # for each row that moves
            f"WITH moved AS (DELETE FROM {REST} WHERE queue_id = {queue_id:d} RETURNING *)"
            f" INSERT INTO {name} SELECT * FROM moved",
            f"ALTER TABLE {REST} ENABLE TRIGGER USER",
            f"ALTER TABLE {JOBS} ATTACH PARTITION {name} FOR VALUES IN ({queue_id:d})",
        )

    def join(self) -> None:
        """Make hipq_job the plain table again that the migrations have made."""
        indexes, ids, tables = self._indexes(), self._sequence(), [*self.own_tables.values()]
        triggers = [one for one in self._triggers(JOBS) if one[0] not in _OWN_TRIGGERS]
        key, definition = self._kept_key()
        grants = [*self._grants(JOBS, "TABLE"), *self._grants(f"{JOBS}_id_seq", "SEQUENCE")]
        self._do(
            *(f"ALTER TABLE {JOBS} DETACH PARTITION {table}" for table in (REST, *tables)),
            f"DROP TABLE {JOBS}",
            f"DROP FUNCTION {_HAS_JOB}() CASCADE",
            f"DROP FUNCTION {_HAS_NO_ANSWERS}()",
            *(_drop(index, REST) for index in indexes if index.is_unique),
            *(f"ALTER INDEX {i.of_rest} RENAME TO {i.name}" for i in indexes if not i.is_unique),
            f"ALTER TABLE {REST} RENAME TO {JOBS}",
            *(f"INSERT INTO {JOBS} SELECT * FROM {table}" for table in tables),
            *(f"DROP TABLE {table}" for table in tables),
            *(_without_queue(index) for index in indexes if index.is_unique),
            f"ALTER TABLE {JOBS} ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY"
            f" (SEQUENCE NAME {JOBS}_id_seq {ids.options})",
            *(definition for _, definition in triggers),
            f"ALTER TABLE {ANSWERS} ADD CONSTRAINT {key} {definition}",
            *grants,
        )
        self._go_on(ids)

    def empty(self, table: str) -> None:
        """Delete all jobs of a table; the caller has deleted what belongs to them."""
        self._do(f"TRUNCATE {table}")

    # The catalog

    @property
    def _is_postgresql(self) -> bool:
        return connections[self.using].vendor == "postgresql"

    def _indexes(self) -> list[_Index]:
        return [_Index(*row) for row in self._rows(_INDEXES)]

    def _triggers(self, table: str) -> list[tuple[str, str]]:
        return self._rows(
            "SELECT quote_ident(tgname), pg_get_triggerdef(oid) FROM pg_trigger"
            f" WHERE tgrelid = {_oid(table)} AND NOT tgisinternal ORDER BY tgname"
        )

    def _keys(self) -> list[tuple[str, str, str, str]]:
        """Return the foreign keys that name jobs: table, column, name, definition."""
        return self._rows(_KEYS)

    def _kept_key(self) -> tuple[str, str]:
        """Return name and definition of the foreign key whose work a trigger does."""
        [(arguments,)] = self._rows(
            "SELECT encode(tgargs, 'escape') FROM pg_trigger"
            f" WHERE tgrelid = {_oid(ANSWERS)} AND tgname = '{_OF_ANSWERS}'"
        )
        name, definition, *_ = arguments.split("\\000")
        return name, definition

    def _sequence(self) -> _Sequence:
        [row] = self._rows(_SEQUENCE)
        return _Sequence(*row)

    def _go_on(self, ids: _Sequence) -> None:
        self._do(f"SELECT setval('{JOBS}_id_seq', {ids.last_value:d}, {ids.is_called})")

    @property
    def _home(self) -> str:
        [(schema,)] = self._rows(
            f"SELECT relnamespace::regnamespace::text FROM pg_class WHERE {_IS_JOBS}"
        )
        return str(schema)

    def _storage(self) -> str:
        [(options,)] = self._rows(f"SELECT reloptions FROM pg_class WHERE oid = {_oid(REST)}")
        return f" WITH ({', '.join(options)})" if options else ""

    def _grants(self, name: str, kind: str) -> Iterator[str]:
        for (grant,) in self._rows(_GRANTS, [kind, name, name]):
            yield grant

    def _uses_of_ids(self) -> Iterator[str]:
        """Yield what lets those who insert jobs take ids: of an identity everybody may."""
        yield from self._grants(f"{JOBS}_id_seq", "SEQUENCE")
        for (role,) in self._rows(_INSERTING):
            yield f"GRANT USAGE ON SEQUENCE {JOBS}_id_seq TO {role}"

    def _rows(self, sql: str, params: Sequence[Any] | None = None) -> list[Any]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def _do(self, *statements: str) -> None:
        with connections[self.using].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


# Statements


def _oid(table: str) -> str:
    return f"'{table}'::regclass"


def _drop(index: _Index, table: str) -> str:
    name = index.name if table == JOBS else index.of_rest
    if index.is_primary:
        return f"ALTER TABLE {table} DROP CONSTRAINT {name}"
    return f"DROP INDEX {name}"


def _with_queue(index: _Index) -> str:
    """Return what makes an index of the parent: a unique one must name the queue.

    It comes last, so that look-ups by the columns before it need not know the queue.
    """
    if index.is_primary:
        return f"ALTER TABLE {JOBS} ADD CONSTRAINT {index.name} PRIMARY KEY (id, queue_id)"
    if index.is_unique:
        return re.sub(r"( USING btree \([^()]*)\)", r"\1, queue_id)", index.definition, count=1)
    return index.definition


def _without_queue(index: _Index) -> str:
    if index.is_primary:
        return f"ALTER TABLE {JOBS} ADD CONSTRAINT {index.name} PRIMARY KEY (id)"
    return index.definition.replace(" ON ONLY ", " ON ").replace(", queue_id)", ")", 1)


_OF_ANSWERS, _HAS_JOB, _HAS_NO_ANSWERS = (
    "hipq_answer_job", "hipq_answer_has_job", "hipq_job_has_no_answers"
)  # fmt: skip


def _answer_trigger(name: str, definition: str) -> str:
    """Return what does the work of a foreign key, and keeps its name and its definition."""
    return (
        f"CREATE CONSTRAINT TRIGGER {_OF_ANSWERS} AFTER INSERT OR UPDATE OF job_id ON {ANSWERS}"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.job_id IS NOT NULL)"
        f" EXECUTE FUNCTION {_HAS_JOB}('{name}', '{definition}')"
    )


# As the server does it for a foreign key: with the rights of the owner, at the end, and not for
# an answer or a deletion that is gone by then.
_KEEPING_JOBS = (
    f"""CREATE FUNCTION {_HAS_JOB}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, {{home}}, pg_temp AS $$
BEGIN
    PERFORM 1 FROM {JOBS} WHERE id = NEW.job_id FOR KEY SHARE;
    IF NOT FOUND AND EXISTS (
        SELECT 1 FROM {ANSWERS} WHERE id = NEW.id AND job_id = NEW.job_id
    ) THEN
        RAISE foreign_key_violation USING MESSAGE = format(
            'hipq: answer %s names job %s, which does not exist', NEW.id, NEW.job_id);
    END IF;
    RETURN NULL;
END $$""",
    f"""CREATE FUNCTION {_HAS_NO_ANSWERS}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, {{home}}, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM {ANSWERS} WHERE job_id = OLD.id)
        AND NOT EXISTS (SELECT 1 FROM {JOBS} WHERE id = OLD.id)
    THEN
        RAISE foreign_key_violation USING MESSAGE = format(
            'hipq: job %s is still named by answers', OLD.id);
    END IF;
    RETURN NULL;
END $$""",
    f"CREATE CONSTRAINT TRIGGER {_OF_ANSWERS} AFTER DELETE OR UPDATE OF id ON {JOBS}"
    f" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {_HAS_NO_ANSWERS}()",
)

# A row that goes to another table is deleted and inserted: the guard sees no update.
_STAYS = "hipq_job_stays"
_KEEPING_QUEUE = f"""DO $$ BEGIN EXECUTE (
    SELECT format('CREATE TRIGGER {_STAYS} BEFORE UPDATE OF queue_id ON {JOBS} FOR EACH ROW'
        ' WHEN (NEW.queue_id <> OLD.queue_id) EXECUTE FUNCTION %s', tgfoid::regprocedure)
    FROM pg_trigger WHERE tgrelid = {_oid(JOBS)} AND tgname = 'hipq_job_guard'
); END $$"""
_OWN_TRIGGERS = (_OF_ANSWERS, _STAYS)

_IS_JOBS = f"oid = to_regclass('{JOBS}')"

_PARTITIONS = f"""
    SELECT c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid)
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = {_oid(JOBS)} ORDER BY c.relname"""

_HAS = f"""
    SELECT 1 FROM pg_class WHERE relname = %s
        AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = {_oid(JOBS)})"""

_KEYS = f"""
    SELECT c.conrelid::regclass::text, a.attname, quote_ident(c.conname),
        pg_get_constraintdef(c.oid)
    FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
    WHERE c.contype = 'f' AND c.confrelid = {_oid(JOBS)} ORDER BY 1, 2"""

_INDEXES = f"""
    SELECT i.indexrelid::regclass::text,
        COALESCE(part.inhrelid::regclass::text, c.relname || '_rest'),
        pg_get_indexdef(i.indexrelid), i.indisunique, i.indisprimary
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    LEFT JOIN (SELECT h.inhparent, h.inhrelid FROM pg_inherits h JOIN pg_index p
        ON p.indexrelid = h.inhrelid AND p.indrelid = to_regclass('{REST}')
    ) part ON part.inhparent = i.indexrelid
    WHERE i.indrelid = {_oid(JOBS)} ORDER BY c.relname"""

_SEQUENCE = f"""
    SELECT format('INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s',
        p.seqincrement, p.seqmin, p.seqmax, p.seqstart, p.seqcache), s.last_value, s.is_called
    FROM pg_sequence p, {JOBS}_id_seq s
    WHERE p.seqrelid = pg_get_serial_sequence('{JOBS}', 'id')::regclass"""

_GRANTS = """
    SELECT format('GRANT %%s ON %%s %%I TO %%s%%s', string_agg(privilege_type, ', '), %s::text,
        %s::text, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
        CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM pg_class c, aclexplode(c.relacl) WHERE c.oid = %s::regclass
    GROUP BY grantee, is_grantable"""

_INSERTING = f"""
    SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END
    FROM pg_class c, aclexplode(c.relacl)
    WHERE c.oid = {_oid(JOBS)} AND privilege_type = 'INSERT' AND grantee <> c.relowner"""
