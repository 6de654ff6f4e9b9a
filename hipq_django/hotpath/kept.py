"""Statements that are functions of the database on PostgreSQL, whose plans each session keeps.

To parse and plan them takes the server longer than to execute them for a row or two. Statements
that the driver prepares would do as well, but not behind a pooler that shares connections.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connections

from hipq_django.database import IDLE_LIMIT, LOCK_MILLISECONDS
from hipq_django.schema import on_postgresql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor

PREFIX = "hipq_"


@dataclass(frozen=True, slots=True)
class Kept:
    """A statement, and what PostgreSQL must know of the function that executes it."""

    name: str
    takes: tuple[str, ...]
    """The types of its parameters."""
    gives: tuple[str, ...]
    """The names and types of the columns of its rows; the type alone of a single value."""
    text: str
    ends_silence: bool = False
    """Whether the function takes one more parameter, in milliseconds.

    After so long a silence of the client, a machine without power say, the server ends this
    transaction and its locks. Without it that is left to TCP, which takes hours.
    """
    is_single: bool = False
    """Whether it takes its parameters as one document, and returns one value, NULL for no row.

    Both are for what is asked for one job at a time: to read many parameters, and to return a set
    of rows, takes up to a tenth of such a call's time.
    """
    lock: str = ""
    """What the function locks first, its parameters numbered; without it, it returns no rows.

    A statement of its own: `text` sees what was committed before the lock was taken.
    """
    patience: int = LOCK_MILLISECONDS
    """For how many milliseconds it waits for a row that somebody has locked, then it is ended.

    0: for as long as it takes. Only who waits pays for the limit.
    """

    @property
    def function(self) -> str:
        """The name of the function."""
        return PREFIX + self.name

    @property
    def call(self) -> str:
        """The statement that takes the same parameters and returns the same rows."""
        call = f"{self.function}({', '.join(['%s'] * len(self._parameters))})"
        return f"SELECT {call}" if self.is_single else f"SELECT * FROM {call}"

    def params(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the parameters of the call from those of the statement."""
        return [json.dumps(values, default=str)] if self.is_single else values

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the parameters of the numbered statement."""
        return ("jsonb",) if self.is_single else self.takes

    @property
    def _parameters(self) -> tuple[str, ...]:
        return (*self.types, "integer") if self.ends_silence else self.types

    @property
    def definition(self) -> str:
        """The statement that creates the function.

        The first plan is kept: others would be for values of parameters, of which none matters.
        """
        limit = f"""
                PERFORM set_config('lock_timeout', '{LOCK_MILLISECONDS}', true);
                PERFORM set_config('{IDLE_LIMIT}', ${len(self._parameters)}::text, true)
                WHERE current_setting('{IDLE_LIMIT}') = '0';"""
        lock = f"""
                PERFORM 1 FROM {self.lock};
                IF NOT FOUND THEN RETURN; END IF;"""
        begin = f"BEGIN {limit if self.ends_silence else ''} {lock if self.lock else ''}"
        patience = f" SET lock_timeout = '{self.patience}ms'" if self.patience else ""
        returns = f"TABLE ({', '.join(self.gives)})"
        body = f"{begin} RETURN QUERY {self.numbered}; END"
        if self.is_single:
            [returns] = self.gives
            body = f"DECLARE found {returns}; {begin} {self.numbered} INTO found; RETURN found; END"
        return f"""
            CREATE FUNCTION {self.function}({", ".join(self._parameters)}) RETURNS {returns}
            LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan{patience} AS $$
            #variable_conflict use_column
            {body} $$"""

    @property
    def numbered(self) -> str:
        """The statement with its parameters numbered."""
        text = self.text
        for number, kind in enumerate(self.takes):
            field = f"($1 ->> {number})::{kind}"
            text = text.replace("%s", field if self.is_single else f"${number + 1}", 1)
        return text


def create_functions(statements: Iterable[Kept], schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Create the functions; PostgreSQL only. Used by a migration."""
    for kept in statements:
        on_postgresql(schema_editor, kept.definition)


def drop_functions(statements: Iterable[Kept], schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Drop the functions."""
    for kept in statements:
        on_postgresql(schema_editor, f"DROP FUNCTION {kept.function}")


_found: dict[tuple[Any, ...], bool] = {}


def has_functions(using: str) -> bool:
    """Whether the database has the functions; tables made without migrations lack them."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        return False
    database = tuple(connection.settings_dict[name] for name in ("HOST", "PORT", "NAME"))
    if database not in _found:
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regproc(%s) IS NOT NULL", [f"{PREFIX}look"])
            [(_found[database],)] = cursor.fetchall()
    return _found[database]
