"""Queries whose text the ORM writes once for each database.

To write the text of a query takes Django longer than the database needs to answer it, which counts
where the same is asked again and again: for each run of a flow, and each time a schedule fires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.query import FlatValuesListIterable, ModelIterable, ValuesListIterable

from hipq_django.database.lookups import ids_as_parameter

Found = TypeVar("Found")


def built_once(build: Callable[..., QuerySet[Any, Found]]) -> Callable[..., list[Found]]:
    """Let the ORM write the text of a query once for each database, and fetch its rows by that.

    `build(*values, using)` returns the query. It may ask for rows, also with related ones, for
    `only` some of their fields with annotations, or for a `values_list`. The values are moments,
    numbers, texts, and lists of ids for `ids_in`; the text depends on none of them, so none is
    None. Where a list is empty, nothing is asked.
    """

    @wraps(build)
    def fetch(*args: Any) -> list[Found]:
        *given, using = args
        values = [v if isinstance(v, datetime | int | str) else sorted(set(v)) for v in given]
        if [] in values:
            return []
        key = (build, using)
        if key not in built:
            built[key] = _written(build, values, using)
        return built[key].fetch(values, connections[using])

    return fetch


@dataclass(frozen=True)
class _Query:
    """The text of a query, and how its rows are read."""

    sql: str
    params: Sequence[Any]
    places: Sequence[tuple[int, int]]
    """Which of the parameters are which of the values."""
    converters: Sequence[tuple[int, Sequence[Callable[..., Any]], Any]]
    """By column: what makes Python's values of the driver's, and the expression."""
    read: Callable[[Sequence[Any], str], Any]

    def fetch(self, values: Sequence[Any], connection: BaseDatabaseWrapper) -> list[Any]:
        params = list(self.params)
        for param, value in self.places:
            params[param] = _as_parameter(values[value], connection)
        with connection.cursor() as cursor:
            cursor.execute(self.sql, params)
            rows = [list(row) for row in cursor.fetchall()]
        for column, converters, expression in self.converters:
            for row in rows:
                for convert in converters:
                    row[column] = convert(row[column], expression, connection)
        return [self.read(row, connection.alias) for row in rows]


built: dict[tuple[Callable[..., Any], str], _Query] = {}
"""The queries that were built, by database."""


def _written(build: Callable[..., QuerySet[Any, Any]], values: Sequence[Any], using: str) -> _Query:
    """Build a query with a mark in the place of each value, and find where they have gone."""
    marks = [_mark(place, value) for place, value in enumerate(values)]
    rows = build(*marks, using)
    compiler = rows.query.get_compiler(using)
    sql, params = compiler.as_sql()
    shown = [_as_parameter(mark, connections[using]) for mark in marks]
    if connections[using].vendor == "sqlite":
        sql, params = _with_literals(sql, params, shown)
    places = [(n, shown.index(param)) for n, param in enumerate(params) if param in shown]
    if len({value for _, value in places}) < len(values):
        raise TypeError(
            f"{build.__qualname__} does not use each of its values as it is; they are {values!r}"
        )
    columns = [column for column, _, _ in compiler.select]
    converters = [(n, *found) for n, found in compiler.get_converters(columns).items()]
    return _Query(sql, params, places, converters, _reader(build, rows, compiler))


def _with_literals(
    sql: str, params: Sequence[Any], marks: Sequence[Any]
) -> tuple[str, Sequence[Any]]:
    """Write the texts and truth values that are always the same into the text of the query.

    SQLite makes a new plan each time that it is given a parameter which it had to compare with the
    condition of a partial index. That takes it longer than all the rest.
    """

    def is_same(param: Any) -> bool:
        return isinstance(param, str | bool) and param not in marks

    places = [_literal(param) if is_same(param) else "%s" for param in params]
    left = [param for param in params if not is_same(param)]
    return sql.replace("%%", "%%%%") % tuple(places), left


def _literal(value: str | bool) -> str:
    """Return a value as SQL, which the driver will look through for places of parameters."""
    if isinstance(value, bool):
        return str(int(value))
    text = str(value).replace("'", "''").replace("%", "%%")
    return f"'{text}'"


def _mark(place: int, value: Any) -> Any:
    """Return a value of the same type that occurs nowhere else."""
    number = 1_999_000_000 + place  # in the range of all fields for numbers
    if isinstance(value, datetime):
        return datetime(2222, 2, 2, 2, 2, 2, place, tzinfo=UTC)
    if isinstance(value, str):
        return f"mark {number}"
    return number if isinstance(value, int) else [number]


def _as_parameter(value: Any, connection: BaseDatabaseWrapper) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return ids_as_parameter(value, connection.vendor) if isinstance(value, list) else value


def _reader(
    build: Callable[..., Any], rows: QuerySet[Any, Any], compiler: Any
) -> Callable[[Sequence[Any], str], Any]:
    """Return what makes a result of the values of a row."""
    kind = rows._iterable_class
    if kind is FlatValuesListIterable:
        return lambda row, _: row[0]
    if kind is ValuesListIterable:
        return lambda row, _: tuple(row)
    if kind is not ModelIterable:
        raise TypeError(f"{build.__qualname__} asks for dictionaries: not supported")
    of_model = _reader_of_model(compiler.klass_info, compiler.select)
    annotations = compiler.annotation_col_map.items()

    def read(row: Sequence[Any], using: str) -> Model:
        found: Model = of_model(row, using)
        for name, column in annotations:
            setattr(found, name, row[column])
        return found

    return read


def _reader_of_model(info: dict[str, Any], select: Sequence[Any]) -> Callable[..., Any]:
    """Return what makes an object of the values of a row, and its related ones, if there are any.

    Not by Django's own means for the latter, whose parameters differ from version to version.
    """
    fields, model = info["select_fields"], info["model"]
    names = [select[field][0].target.attname for field in fields]
    first, last, pk = fields[0], fields[-1] + 1, fields[names.index(model._meta.pk.attname)]
    related = [
        (_reader_of_model(other, select), other["local_setter"], other["remote_setter"])
        for other in info.get("related_klass_infos", ())
    ]

    def read(row: Sequence[Any], using: str) -> Model | None:
        if row[pk] is None:
            return None
        found: Model = model.from_db(using, names, row[first:last])
        for of_other, set_here, set_there in related:
            other = of_other(row, using)
            set_here(found, other)
            if other is not None:
                set_there(other, found)
        return found

    return read
