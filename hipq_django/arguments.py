"""Converts arguments of tasks to JSON and back: the classes for the setting ARGUMENTS.

`HIPQ = {"default": {"ARGUMENTS": "hipq_django.arguments.PydanticArguments"}}`. Your own class needs
the two methods of `Arguments`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, datetime, time
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

from hipq_django.domain.serialization import to_json
from hipq_django.domain.signature import FILLED_IN

_PLAIN = frozenset({str, int, bool, type(None)})


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
    call. Needs the extra `pydantic`.
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
        """Return the valid arguments as JSON."""
        adapter = _adapter(function)
        valid = _validated(adapter, arguments)
        return adapter.dump_python(valid, mode="json")  # type: ignore[no-any-return]  # a dict

    def load(self, function: Callable[..., Any], stored: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with the types of the annotations."""
        return _validated(_adapter(function), stored)


def _validated(adapter: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        return adapter.validate_python(arguments)  # type: ignore[no-any-return]  # a dict
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        value = "" if isinstance(first["input"], dict) else f", not {first['input']!r:.100}"
        raise ValueError(f"argument {place}: {first['msg']}{value}.") from error


@cache
def _adapter(function: Callable[..., Any]) -> Any:
    """Return the adapter that validates and dumps the arguments of a function."""
    from typing import NotRequired

    from pydantic import ConfigDict, TypeAdapter, with_config
    from typing_extensions import TypedDict, get_type_hints

    parameters = inspect.signature(function).parameters.values()
    given = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in FILLED_IN]
    annotated = {p.name: Any if p.annotation is p.empty else p.annotation for p in given}
    try:
        hints = get_type_hints(
            SimpleNamespace(__annotations__=annotated),
            globalns=getattr(function, "__globals__", {}),
            include_extras=True,
        )
    except NameError as error:
        raise TypeError(
            f"an annotation cannot be read: {error}; import it for all code."
        ) from error
    fields: dict[str, Any] = {
        p.name: hints[p.name] if p.default is p.empty else NotRequired[hints[p.name]] for p in given
    }
    extra = ConfigDict(extra="allow")
    named: Any = TypedDict(function.__name__, fields)  # type: ignore[misc]  # made of values
    return TypeAdapter(with_config(extra)(named))


def _check_json(name: str, value: Any) -> None:
    try:
        to_json(value)
    except ValueError as error:
        raise ValueError(f"argument {name} {_advice(name, value, str(error))}") from error


def _advice(name: str, value: Any, reason: str) -> str:
    """Return what to give instead of a value that is not JSON."""
    kind = type(value).__name__
    if hasattr(value, "pk") and hasattr(value, "_meta"):
        return f"is a {kind}: give {name}.pk, the worker reads the row anew."
    if isinstance(value, datetime | date | time):
        return f"is a {kind}: give {name}.isoformat(), or set ARGUMENTS to PydanticArguments."
    return f"is not JSON: {reason}; or set ARGUMENTS to PydanticArguments."
