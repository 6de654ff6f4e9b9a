"""Hot statements as PL/pgSQL functions: a session plans each of them once.

Parsing and planning them takes the server longer than executing them for a row or two. Prepared
statements would do as well, but not behind a pooler that shares connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from textwrap import dedent
from typing import Any

from django.db import connections
from django.utils.functional import cached_property

from hipq_django.database.transactions import IDLE_LIMIT, LOCK_MILLISECONDS, READS_NO_TABLE
from hipq_django.domain.serialization import encode_json, encode_parameters
from hipq_django.exceptions import ConfigurationError

PREFIX = "hipq_"

KEEPS_PLAN = "SET plan_cache_mode = force_generic_plan"
LOOKS_UP = "SET enable_hashjoin = off SET enable_mergejoin = off"
JOINS_SETS = "SET enable_nestloop = off"


_MAY_LOCK = "has_table_privilege('{}'::regclass, 'UPDATE')"

# The setting tells the trigger `hipq_job_parents` what it need not do. It is none of the
# function's own: only a superuser may store a setting that no extension has declared. A condition
# is evaluated without a statement, as PERFORM would be.
_LOCKING = f"""\
IF set_config('hipq.parents', CASE WHEN {_MAY_LOCK.format("hipq_queue")}
    AND {_MAY_LOCK.format("hipq_jobtype")} THEN 'locked' ELSE '' END, true) <> '' THEN
{{}} INTO given;
IF set_config('hipq.parents', '', true) = '' THEN RETURN; END IF;
END IF;"""


@dataclass(frozen=True)
class ServerFunction:
    """A statement, and what PostgreSQL must know about the function that executes it."""

    name: str
    takes: tuple[str, ...]
    """The types of its parameters."""
    gives: tuple[str, ...]
    """The names and types of the columns of its rows; the type alone of a single value."""
    text: str
    ends_silence: bool = False
    """Whether the function takes one more parameter, in milliseconds.

    After this long a silence of the client, for example after a power failure, the server ends the
    transaction and its locks. Without it only TCP would, after hours.
    """
    is_single: bool = False
    """Whether it takes its parameters as one document, and returns one value, NULL for no row.

    Both are for statements about one job: reading many parameters, and returning a set of rows,
    takes up to a tenth of the time of such a call. What is JSON goes into the document as it is,
    not as text. It is a procedure: the server plans no query that calls it.
    """
    lock: str = ""
    """What the function locks first, its parameters numbered; without it, it returns no rows.

    It is a separate statement, so that `text` sees what was committed before the lock was taken.
    """
    joins_sets: bool = False
    """Whether it joins two sets that may both be large; otherwise each row is found by an index."""
    is_in_order: bool = False
    """Whether an index gives the rows in the order that is wanted, so that nothing is sorted.

    While a table is empty it seems as good to read another index from end to end, and to sort.
    """
    is_checked_late: bool = False
    """Whether the commit looks up the rows that new ones belong to.

    Then the planner's limits last until the commit, so only transactions of hipq may call it.
    """
    locking_text: str = ""
    """The same statement of a single one, locking the queue and the type of its new job, if given.

    It is taken where the role may do that: the trigger that does it for any role takes a sixth of
    the time of an enqueue.
    """
    patience: int = LOCK_MILLISECONDS
    """How many milliseconds it waits for a locked row before it is ended.

    0: without a bound. The limit costs only callers that wait.
    """

    @cached_property
    def function(self) -> str:
        """The name of the function, with a digest of all that it does.

        So code never calls a function of another version, because that has another name.
        """
        digest = sha256(self._signature_and_body.encode()).hexdigest()
        return f"{PREFIX}{self.name}_{digest[:8]}"

    @cached_property
    def call(self) -> str:
        """The statement that takes the same parameters and returns the same rows."""
        if self.is_single:
            return f"CALL {self.function}(%s, NULL)"
        return f"SELECT * FROM {self.function}({', '.join(['%s'] * len(self._parameters))})"

    def params(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the parameters of the call."""
        return [encode_parameters(values)] if self.is_single else values

    def text_params(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return those of the statement itself, which takes JSON as text."""
        if not self.is_single:
            return values
        given = zip(values, self.takes, strict=True)
        return [encode_json(value) if kind == "jsonb" else value for value, kind in given]

    @property
    def definition(self) -> str:
        """The statement that creates the function; a migration has it as it was then."""
        kind = "PROCEDURE" if self.is_single else "FUNCTION"
        return f"CREATE {kind} {self.function}{self._signature_and_body}"

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the parameters of the numbered statement."""
        return ("jsonb",) if self.is_single else self.takes

    @property
    def numbered(self) -> str:
        """The statement with its parameters numbered."""
        return self._numbered(self.text)

    def _numbered(self, text: str) -> str:
        for number, kind in enumerate(self.takes):
            field = f"($1 -> {number})" if kind == "jsonb" else f"($1 ->> {number})::{kind}"
            text = text.replace("%s", field if self.is_single else f"${number + 1}", 1)
        return dedent(text).strip()

    @property
    def _parameters(self) -> tuple[str, ...]:
        return (*self.types, "integer") if self.ends_silence else self.types

    @property
    def _signature_and_body(self) -> str:
        if self.is_single:
            signature = f"({self.types[0]}, OUT given {self.gives[0]})"
            last = f"{self.numbered} INTO given;"
        else:
            table = f"TABLE ({', '.join(self.gives)})"
            signature = f"({', '.join(self._parameters)}) RETURNS {table}"
            last = f"RETURN QUERY {self.numbered};"
        body = "\n".join([*self._limits, *self._locking, last])
        return (
            f"{signature}\nLANGUAGE plpgsql {' '.join(self._settings)} AS $$\n"
            f"#variable_conflict use_column\nBEGIN\n{body}\nEND $$"
        )

    @property
    def _settings(self) -> Iterator[str]:
        """The first plan is kept: plans for the values of parameters would be no better.

        It may be made while the tables are empty, when scanning them seems best, so the plans that
        get worse as tables grow are excluded. The limit for locks costs only callers that wait.
        """
        yield KEEPS_PLAN
        yield JOINS_SETS if self.joins_sets else LOOKS_UP
        if self.is_in_order:
            yield "SET enable_sort = off"
        if not self.is_checked_late:
            yield "SET enable_seqscan = off"
        if self.patience and not self.ends_silence:  # whose limit has to last until the commit
            yield f"SET lock_timeout = '{self.patience}ms'"

    @property
    def _limits(self) -> list[str]:
        if self.is_checked_late:
            return [f"PERFORM {READS_NO_TABLE};"]
        if not self.ends_silence:
            return []
        last = len(self._parameters)
        return [
            f"PERFORM set_config('lock_timeout', '{LOCK_MILLISECONDS}', true);",
            f"PERFORM set_config('{IDLE_LIMIT}', ${last}::text, true)",
            f"WHERE current_setting('{IDLE_LIMIT}') = '0';",
        ]

    @property
    def _locking(self) -> list[str]:
        if self.locking_text:
            return [_LOCKING.format(self._numbered(self.locking_text))]
        if self.lock:
            return [f"PERFORM 1 FROM {self.lock};", "IF NOT FOUND THEN RETURN; END IF;"]
        return []


_found: dict[tuple[Any, ...], bool] = {}
"""Which databases have the functions: by alias, which may make another schema visible."""


def has_functions(using: str) -> bool:
    """Return whether the database has the functions; tables made without migrations lack them.

    Raise `ConfigurationError` if they belong to another version of the code.
    """
    settings = connections.settings[using]  # without a look for the connection of this thread
    database = (using, settings["HOST"], settings["PORT"], settings["NAME"])
    if database not in _found:
        _found[database] = _look_for_functions(using)
    return _found[database]


def _look_for_functions(using: str) -> bool:
    from hipq_django.engines.statements import server_functions  # which are made of these

    wanted = {function.function for function in server_functions()}
    names = "|".join(function.name for function in server_functions())
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT proname FROM pg_proc WHERE pg_function_is_visible(oid)")
        there = {name for (name,) in cursor.fetchall()}
    if wanted <= there:
        return True
    if any(re.fullmatch(f"{PREFIX}({names})_[0-9a-f]{{8}}", name) for name in there):
        missing = min(wanted - there)
        raise ConfigurationError(
            f"database {using!r} lacks function {missing}: it was migrated for another version "
            f"of hipq_django. Run `manage.py migrate --database {using}`, or start this "
            "process with the code that the database was migrated for."
        )
    return False
