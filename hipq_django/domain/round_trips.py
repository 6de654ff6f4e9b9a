"""Whether a value that was stored and read again is the value that was given. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

Difference = tuple[str, Any, Any]
"""A place in a value, what was given there, and what was read."""


def difference(given: Any, read: Any) -> Difference | None:
    """Return where a value that was read is not what was given; None if it is.

    A tuple may be read as a list, and a time with another zone at the same moment. An object
    without an equality of its own is compared by its fields, or else by its type.
    """
    return _difference(given, read, "", set())


def _difference(given: Any, read: Any, place: str, seen: set[tuple[int, int]]) -> Difference | None:
    """Return the first difference; `seen` are the pairs of values that were compared before."""
    is_compared = type(given).__eq__ is not object.__eq__  # type: ignore[comparison-overlap]  # it may be
    try:
        if bool(given == read):  # as nearly always
            return None
    except Exception:  # an array has many truths, a circle has no end
        is_compared = False
    inside, others = _inside(given), _inside(read)
    if inside is None:
        is_same = not is_compared and type(given) is type(read)
        return None if is_same or _is_same_moment(given, read) else (place, given, read)
    if (id(given), id(read)) in seen:
        return None
    seen.add((id(given), id(read)))
    if not _alike(given, read) or others is None or inside.keys() != others.keys():
        return place, given, read
    found = (_difference(part, others[key], f"{place}{key}", seen) for key, part in inside.items())
    return next(filter(None, found), None)


def _alike(given: Any, read: Any) -> bool:
    return type(given) is type(read) or (type(given) is tuple and type(read) is list)


def _inside(value: Any) -> dict[str, Any] | None:
    """Return the parts of a value by their places; None if it is compared as a whole."""
    if isinstance(value, dict):
        return {f"[{key!r:.100}]": part for key, part in value.items()}
    if isinstance(value, list | tuple):
        return {f"[{number}]": part for number, part in enumerate(value)}
    if (names := _fields(value)) is None:
        return None
    return {f".{name}": getattr(value, name, None) for name in names}


def _fields(value: Any) -> Iterable[str] | None:
    """Return the names of the fields of a model of pydantic or a dataclass."""
    kind = type(value)
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_fields"):
        private = getattr(kind, "__private_attributes__", {})
        return [*kind.model_fields, *private, "model_extra"]
    return [field.name for field in fields(value)] if is_dataclass(value) else None


def _is_same_moment(given: Any, read: Any) -> bool:
    """Within one zone, and in its repeated hour, Python compares times by their clock."""
    times = [time for time in (given, read) if isinstance(time, datetime) and time.tzinfo]
    return len(times) == 2 and times[0].astimezone(UTC) == times[1].astimezone(UTC)
