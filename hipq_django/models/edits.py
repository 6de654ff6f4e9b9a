"""Where a row says something else than the code or the setting: an edit wins.

The column `declared` keeps what the code said last. A field with another value has been edited: in
the admin, by code or by SQL. It stays as it is until `hipq_sync --reset`.
"""

from __future__ import annotations

from typing import Any

from hipq_django.job_types.declaration import DEFAULT_QUEUE
from hipq_django.models.job_type import JobType
from hipq_django.models.queue import Queue
from hipq_django.models.schedule import Schedule

AnyDeclared = Queue | JobType | Schedule


def changes(row: AnyDeclared, wanted: dict[str, Any], *, is_reset: bool = False) -> dict[str, Any]:
    """Return the new values of a row: what the code says of the fields that nobody has edited.

    `wanted` is what the code says, as `in_json` has it.
    """
    if row.declared == wanted and not is_reset:
        return {}
    kept = set() if is_reset else edited(row, wanted)
    new = {name: code for name, (code, _) in differences(row, wanted).items() if name not in kept}
    return {**new, "declared": wanted}


def edited(row: AnyDeclared, wanted: dict[str, Any]) -> set[str]:
    """Return the fields of a row that somebody has edited."""
    last = {name: row.declared.get(name, _default(row, name)) for name in wanted}
    return differences(row, last).keys() & wanted.keys()


def differences(row: AnyDeclared, said: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fields in which a row differs from what was said: that value, and the row's."""
    found = {name: (_read(row, name, value), _value(row, name)) for name, value in said.items()}
    return {name: values for name, values in found.items() if values[0] != values[1]}


def shown_edits(row: AnyDeclared, said: dict[str, Any]) -> str:
    """Return in what a row differs from the code, in words; nothing if it does not."""
    found = differences(row, said).items()
    return ", ".join(f"{name} is {value}, and {code} in the code" for name, (code, value) in found)


def _value(row: AnyDeclared, name: str) -> Any:
    """Return the value of a field; the name of a queue stands for it."""
    value = getattr(row, name)
    return value.name if isinstance(value, Queue) else value


def _read(row: AnyDeclared, name: str, value: Any) -> Any:
    field: Any = row._meta.get_field(name)
    return value if field.is_relation else field.to_python(value)


def _default(row: AnyDeclared, name: str) -> Any:
    field: Any = row._meta.get_field(name)
    return DEFAULT_QUEUE if field.is_relation else field.get_default()
