"""How the databases spell what the statements need."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from hipq_django.payloads import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database spells what the statements need."""

    rows: str
    """A JSON array, and the number of its elements, as rows called `r`."""
    field: str
    """Field number {0} of such a row as the type {1}."""
    texts: str
    """A JSON array of texts as rows."""
    json: str
    """Field number {0} as JSON, where `encode_json` made it."""
    encode_json: Callable[[Any], Any]
    moment: str
    """The column {0}, a time, as what `read_moment` reads; the second argument is its zone."""
    read_moment: Callable[[Any, tzinfo], datetime]
    lock: str
    """The end of a SELECT that locks what it returns and passes over what others locked."""
    later: str = ""
    """The time {0} and {1} seconds, in the form of a column; empty where SQL cannot say it."""
    reserve: str = ""
    """Reserves %s ids for new jobs, as an array; empty where one writer at a time needs none."""
    writes_in_with: bool = False
    """Whether a statement may write to two tables."""


def _from_microseconds(number: int, _: tzinfo) -> datetime:
    return _EPOCH + timedelta(microseconds=number)


def _from_naive(moment: datetime, zone: tzinfo) -> datetime:
    return moment.replace(tzinfo=zone).astimezone(UTC)


def factor_of(number: Decimal | float) -> Decimal:
    """Return a factor, or a sum of factors; SQLite has only floats, factors three decimals."""
    return number if isinstance(number, Decimal) else Decimal(str(round(number, 3)))


DIALECTS = {
    "postgresql": Dialect(
        # Without the LIMIT the planner believes in a hundred rows: for a job or two it would read
        # the table from end to end.
        rows="(SELECT r FROM jsonb_array_elements(%s::jsonb) AS r LIMIT %s) AS e",
        field="(r ->> {0})::{1}",
        texts="jsonb_array_elements_text(%s::jsonb)",
        json="(r -> {0})",
        encode_json=lambda value: value,
        moment="(EXTRACT(EPOCH FROM {0}) * 1000000)::bigint",
        read_moment=_from_microseconds,
        lock="FOR NO KEY UPDATE SKIP LOCKED",
        later="({0}::timestamptz + {1} * interval '1 second')",
        # Materialized, or the catalog would be asked for the sequence once for each id.
        reserve="WITH s AS MATERIALIZED (SELECT pg_get_serial_sequence('hipq_job', 'id')::regclass "
        "AS ids) SELECT array_agg(nextval(s.ids)) FROM s, generate_series(1, %s)",
        writes_in_with=True,
    ),
    "sqlite": Dialect(
        rows="(SELECT value FROM json_each(%s) LIMIT %s) AS r",
        field="json_extract(r.value, '$[{0}]')",
        texts="(SELECT value FROM json_each(%s))",
        json="json_extract(r.value, '$[{0}]')",
        encode_json=encode_json,
        moment="{0}",
        read_moment=_from_naive,
        lock="",
    ),
}
