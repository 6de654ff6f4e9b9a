"""Converts arguments of tasks to JSON and back: the classes for the setting ARGUMENTS.

`HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}`. Your own class needs
the two methods of `Arguments`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, Protocol
from uuid import UUID

from hipq_django.domain.redaction import quoted
from hipq_django.domain.serialization import NotJsonError, to_json
from hipq_django.domain.signature import FILLED_IN

_PLAIN = frozenset({str, int, bool, type(None)})
_OF_JSON = _PLAIN | {float, list, dict}


class Arguments(Protocol):
    """Converts arguments to JSON when a job is enqueued, and back before the function is called.

    Both methods get the function and a dict by the names of its parameters, which have been
    checked. They raise `ValueError` or `TypeError` for what cannot be converted; the message
    follows the task's name and a colon.
    """

    def dump(self, function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON."""

    def load(self, function: Callable[..., Any], stored: dict[str, Any]) -> dict[str, Any]:
        """Return the stored arguments in the form that the function takes."""


class JsonArguments:
    """The default: arguments are JSON as they are, and annotations are ignored."""

    def dump(self, function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments; raise `ValueError` for one that is not JSON."""
        del function
        for name, value in arguments.items():
            if type(value) not in _PLAIN:
                _check_json(name, value)
        return arguments

    def load(self, function: Callable[..., Any], stored: dict[str, Any]) -> dict[str, Any]:
        """Return the stored arguments."""
        del function
        return stored


class PydanticArguments:
    """Arguments have the types of the annotations, by pydantic: dates, decimals, models, and
    others.

    They are validated when the job is enqueued, stored as JSON, and validated again before the
    call. What cannot be read again from that JSON as it was given is refused. Arguments that only
    `**kwargs` takes are JSON. Needs the extra `pydantic`.
    """

    def __init__(self) -> None:
        try:
            import pydantic  # noqa: F401 - an extra
        except ImportError as error:
            raise ImportError(
                "ARGUMENTS names PydanticArguments, which needs pydantic: "
                "pip install 'hipq-django[pydantic]'."
            ) from error

    def dump(self, function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the valid arguments as JSON from which they can be read again."""
        adapter = _adapter(function)
        valid = _validated(adapter, arguments)
        # As models are read: by alias, and without computed fields.
        stored: dict[str, Any] = adapter.dump_python(
            valid, mode="json", by_alias=True, round_trip=True
        )
        _check_read_again(adapter, valid, stored)
        return stored

    def load(self, function: Callable[..., Any], stored: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the types of the annotations."""
        return _validated(_adapter(function), stored)


def _check_read_again(adapter: Any, valid: dict[str, Any], stored: dict[str, Any]) -> None:
    """Refuse arguments of which the function would get less or something else."""
    try:
        read = _validated(adapter, stored)
    except ValueError as error:
        raise ValueError(f"{error} So pydantic says of its own JSON.") from error
    for name, given in valid.items():
        if not _is_same(given, read.get(name)):
            raise ValueError(
                f"argument {name} is a {type(given).__name__}, and the function would get another "
                "value, because what is read of its JSON differs: annotate it with its own class, "
                "no field of which is excluded, private or a secret; or give JSON."
            )


def _is_same(given: Any, read: Any) -> bool:
    """Return whether an argument that was read is what was given; a tuple may become a list."""
    if isinstance(given, datetime) and given.tzinfo and isinstance(read, datetime):
        # In the hour that a zone repeats, Python never takes times of two zones for equal.
        return given.astimezone(UTC) == read.astimezone(UTC)
    if isinstance(given, dict):
        is_like = isinstance(read, dict) and given.keys() == read.keys()
        return is_like and all(_is_same(part, read[key]) for key, part in given.items())
    if isinstance(given, list | tuple):
        is_like = isinstance(read, list | tuple) and len(given) == len(read)
        return is_like and all(map(_is_same, given, read))
    if type(given).__eq__ is object.__eq__:  # type: ignore[comparison-overlap]  # it may be
        return type(given) is type(read)
    return bool(given == read)


def _validated(adapter: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        return adapter.validate_python(arguments)  # type: ignore[no-any-return]  # a dict
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    # Not from pydantic's own error: it quotes parts of values, which nothing could mask.
    place = ".".join(map(str, first["loc"]))
    value = "" if isinstance(first["input"], dict) else f", not {quoted(first['input'])}"
    raise ValueError(f"argument {place}: {first['msg']}{value}.")


@cache
def _adapter(function: Callable[..., Any]) -> Any:
    """Return the adapter that validates and dumps the arguments of a function."""
    from typing import NotRequired

    from pydantic import ConfigDict, PydanticUserError, TypeAdapter, with_config
    from typing_extensions import TypedDict

    parameters = inspect.signature(function).parameters.values()
    given = [p for p in parameters if p.name not in FILLED_IN and p.kind is not p.VAR_KEYWORD]
    hints = _hints(function, given)
    fields: dict[str, Any] = {
        p.name: hints[p.name] if p.default is p.empty else NotRequired[hints[p.name]] for p in given
    }
    extra = ConfigDict(extra="allow", ser_json_inf_nan="constants")  # which are refused later
    named: Any = TypedDict(function.__name__, fields)  # type: ignore[misc]  # made of values
    try:
        return TypeAdapter(with_config(extra)(named))
    except PydanticUserError as error:
        said = str(error).partition("\n")[0].partition(". Set ")[0].removesuffix(".")
        raise TypeError(f"an annotation cannot be used: {said}.") from error


def _hints(function: Callable[..., Any], given: Sequence[inspect.Parameter]) -> dict[str, Any]:
    """Return the annotations of parameters, `Any` where there is none."""
    from typing_extensions import get_type_hints

    annotated = {p.name: Any if p.annotation is p.empty else p.annotation for p in given}
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=annotated),
            globalns=getattr(_annotated(function), "__globals__", {}),
            include_extras=True,
        )
    except NameError as error:
        raise TypeError(
            f"an annotation cannot be read: {error}; import it for all code."
        ) from error


def _annotated(function: Callable[..., Any]) -> Any:
    """Return the function within decorators whose signature `inspect.signature` returns."""
    return inspect.unwrap(function, stop=lambda one: hasattr(one, "__signature__"))


def _check_json(name: str, value: Any) -> None:
    try:
        to_json(value)
    except NotJsonError as error:
        said = _advice(f"{name}{error.place}", error)
        raise ValueError(f"argument {name}{error.place} {said}") from error


def _advice(place: str, error: NotJsonError) -> str:
    """Return what is wrong with a value that is not JSON, and what to give instead."""
    kind = type(error.bad).__name__
    if hasattr(error.bad, "pk") and not isinstance(error.bad, type):
        return f"is a {kind}: give {place}.pk, the worker reads the row anew."
    for kinds, instead in _INSTEAD.items():
        if isinstance(error.bad, kinds):
            given = instead.format(place)
            return f"is a {kind}: give {given}, or set ARGUMENTS to PydanticArguments."
    more = "" if type(error.bad) in _OF_JSON else "; or set ARGUMENTS to PydanticArguments"
    return f"is not JSON: it {error.reason}{more}."


_INSTEAD: dict[Any, str] = {
    datetime | date | time: "{}.isoformat()",
    timedelta: "{}.total_seconds()",
    Decimal | UUID | PurePath: "str({})",
    Enum: "{}.value",
}
