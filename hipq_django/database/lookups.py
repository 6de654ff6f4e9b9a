"""Conditions and look-ups that the ORM does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Lookup, QuerySet, Subquery, TextChoices, TextField
from django.db.models.sql.compiler import SQLCompiler

from hipq_django.domain.states import Outcome, State

T = TypeVar("T")


class _LiteralIn(Lookup):
    """`column IN (…)` with literals; a lookup, because other conditions are compared with 1."""

    lookup_name = "literal_in"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """Write the literals as they stand in the condition of the index."""
        column, params = self.process_lhs(compiler, connection)
        return f"{column} IN ({self.rhs})", params


def state_in(*states: State) -> Lookup[Any]:
    """Return the condition `state IN (…)` with literals.

    SQLite, and PostgreSQL's generic plans, match a partial index by literals only, not by
    parameters.
    """
    return literal_in("state", states)


def outcome_in(*outcomes: Outcome) -> Lookup[Any]:
    """Return the condition `outcome IN (…)` with literals, as `state_in`."""
    return literal_in("outcome", outcomes)


def literal_in(column: str, words: Iterable[TextChoices | str]) -> Lookup[Any]:
    """Return the condition `column IN (…)` with words of the code as literals, as `state_in`."""
    return _LiteralIn(F(column), ", ".join(f"'{word}'" for word in words))


class FirstIds(Subquery):
    """The ids of the rows of a query with a bound, as text with commas; NULL for none.

    So one statement finds the first few rows of each of many others.
    """

    template = "(SELECT group_concat(id) FROM (%(subquery)s) first_rows)"

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.values("id"), output_field=TextField())

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, Any]:
        """Write it with PostgreSQL's name of the aggregate."""
        template = "(SELECT string_agg(id::text, ',') FROM (%(subquery)s) first_rows)"
        return self.as_sql(compiler, connection, template=template)


class CountedPairs(Subquery):
    """How many rows of a query with a bound have which values in two columns, as a list in JSON.

    Each element is a list of both values and the number.
    """

    template = (
        "(SELECT json_agg(json_build_array(%(columns)s, number))::text FROM ("
        "SELECT %(columns)s, COUNT(*) AS number FROM (%(subquery)s) newest GROUP BY %(columns)s"
        ") counted)"
    )

    def __init__(self, rows: QuerySet[Any], *columns: str) -> None:
        names = {f"column_{number}": F(column) for number, column in enumerate(columns)}
        super().__init__(rows.values(**names), output_field=TextField(), columns=", ".join(names))

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """Write it with SQLite's names of the functions."""
        template = self.template.replace("json_agg", "json_group_array")
        template = template.replace("json_build_array", "json_array").replace("::text", "")
        return self.as_sql(compiler, connection, template=template)


class _IdsIn(Lookup):
    """`column IN (…)` with one parameter for all ids, which Django would check one by one."""

    lookup_name = "ids_in"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """Write an array or a document, as the database reads it fastest."""
        if not self.rhs:
            raise EmptyResultSet  # then Django asks nothing
        column, params = self.process_lhs(compiler, connection)
        params = (*params, ids_as_parameter(self.rhs, connection.vendor))
        if connection.vendor == "postgresql":
            return f"{column} = ANY(%s::bigint[])", params
        return f"{column} IN (SELECT value FROM json_each(%s))", params  # noqa: S608 - a column


def ids_as_parameter(ids: Iterable[int], vendor: str) -> str:
    """Return ids as one parameter: an array, or a document."""
    text = ",".join(map(str, ids))
    return f"{{{text}}}" if vendor == "postgresql" else f"[{text}]"


def ids_in(column: str, ids: Iterable[int]) -> Lookup[Any]:
    """Return the condition that a column has one of these ids, which may be thousands."""
    return _IdsIn(F(column), sorted(set(ids)))


def in_parts(values: Iterable[T], using: str) -> Iterator[list[T]]:
    """Yield values in parts of as many as one statement may name by parameters."""
    limit = connections[using].features.max_query_params
    size = min(500, limit // 3) if limit else 500
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part
