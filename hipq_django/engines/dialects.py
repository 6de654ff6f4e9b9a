"""How the databases write what the statements need."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hipq_django.domain.serialization import encode_json


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database writes what the statements need."""

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
    """The column {0}, a time, in the form that the engine reads."""
    by_key: str
    """The condition by which the jobs of the rows `v` are looked up in the primary key at once."""
    lock: str
    """The end of a SELECT that locks the rows it returns and skips those that others locked."""
    data: str
    """The value of `job_data` under the name {0}, in a JSON array; more may follow it."""


POSTGRESQL = Dialect(
    # Without the LIMIT the planner believes in a hundred rows: for a job or two it would read
    # the table from end to end.
    rows="(SELECT r FROM jsonb_array_elements(%s::jsonb) AS r LIMIT %s) AS e",
    field="(r ->> {0})::{1}",
    texts="jsonb_array_elements_text(%s::jsonb)",
    json="(r -> {0})",
    encode_json=lambda value: value,
    moment="(EXTRACT(EPOCH FROM {0}) * 1000000)::bigint",
    by_key="AND hipq_job.id = ANY (ARRAY(SELECT id FROM v))",
    lock="FOR NO KEY UPDATE SKIP LOCKED",
    data="jsonb_build_array(job_data -> '{0}')",
)

SQLITE = Dialect(
    rows="(SELECT value FROM json_each(%s) LIMIT %s) AS r",
    field="json_extract(r.value, '$[{0}]')",
    texts="(SELECT value FROM json_each(%s))",
    json="json_extract(r.value, '$[{0}]')",
    encode_json=encode_json,
    # As text: the driver would make a moment of each, though most jobs of a batch share theirs.
    moment="({0} || '')",
    by_key="",
    lock="",
    # Of one path it would make a value of SQL, which has no booleans.
    data="json_extract(job_data, '$.{0}', '$.{0}')",
)


def literal(value: Any) -> str:
    """Return a value of a job as SQL."""
    return f"'{value!s}'" if isinstance(value, str) else json.dumps(value)


def assignments(values: Mapping[str, Any]) -> str:
    """Return the values that an UPDATE writes as SQL."""
    return ", ".join(f"{name} = {literal(value)}" for name, value in values.items())
