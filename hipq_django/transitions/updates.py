"""How rows of jobs are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db.models import Case, Model, Value, When

from hipq_django.database.errors import SkippedRowError
from hipq_django.database.lookups import in_parts
from hipq_django.domain.states import Phase
from hipq_django.models import Job

CASES_PER_STATEMENT = 100
"""Each row goes through all cases before its own, so that twice as many take four times as long."""

UNOWNED: dict[str, Any] = {"worker": None, "phase": Phase.NONE}
"""The values of a job without an owner."""


def rows_of(using: str, ids: Sequence[int]) -> Any:
    """Return the jobs with these ids."""
    return Job.objects.using(using).filter(pk__in=ids)


def chunks(using: str, ids: Sequence[int]) -> Iterator[Any]:
    """Yield them in parts that fit into one statement."""
    for part in in_parts(ids, using):
        yield rows_of(using, part)


def update_all(using: str, ids: Sequence[int], **values: Any) -> None:
    """Give locked rows the same values; raise `SkippedRowError` if the database lets one be."""
    if sum(rows.update(**values) for rows in chunks(using, ids)) < len(ids):
        raise SkippedRowError


def update_each(using: str, changes: Mapping[int, Mapping[str, Any]], **same: Any) -> None:
    """Do so in few statements where values differ by row, `changes`; `same` do not."""
    ids = list(changes)
    for start in range(0, len(ids), CASES_PER_STATEMENT):
        part = ids[start : start + CASES_PER_STATEMENT]
        cases = {
            name: _case(name, {i: changes[i][name] for i in part}) for name in changes[part[0]]
        }
        update_all(using, part, **cases, **same)


def _case(name: str, values: Mapping[int, Any]) -> Case:
    output: Any = Job._meta.get_field(name)
    whens = [When(pk=pk, then=Value(value, output_field=output)) for pk, value in values.items()]
    return Case(*whens, output_field=output)


def set_values(row: Model, values: Mapping[str, Any]) -> None:
    """Bring a copy up to date."""
    for name, value in values.items():
        setattr(row, name, value)
