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
    try:
        if bool(given == read):  # as nearly always
            return None
    except Exception:  # noqa: S110 - an array has many truths, a circle has no end
        pass
    return _search(given, read)


def _search(given: Any, read: Any) -> Difference | None:
    """Return the first difference, from the top down."""
    seen: set[tuple[int, int]] = set()
    left: list[Difference] = [("", given, read)]
    while left:
        place, one, other = left.pop()
        inside = _inside(one)
        if inside is None:
            if not _same(one, other):
                return place, one, other
            continue
        if (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        others = _inside(other)
        if not _alike(one, other) or others is None or inside.keys() != others.keys():
            return place, one, other
        left += reversed([(f"{place}{key}", value, others[key]) for key, value in inside.items()])
    return None


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


def _same(given: Any, read: Any) -> bool:
    if isinstance(given, datetime) and isinstance(read, datetime):
        return _moment(given) == _moment(read)
    if type(given).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]  # it may be
        return type(given) is type(read)
    try:
        return bool(given == read)
    except Exception:  # an array has many truths
        return type(given) is type(read)


def _moment(time: datetime) -> datetime:
    """Within one zone, and in its repeated hour, Python compares times by their clock."""
    return time if time.tzinfo is None else time.astimezone(UTC)
