"""The signature of a task's function: which arguments it takes, and which are stored. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter
from typing import Any, Final

from hipq_django.domain.drafts import CALL_OPTIONS, JOB_OPTIONS
from hipq_django.exceptions import ArgumentsError, InvalidJobTypeError, nearest_name

FILLED_IN: Final = ("job", "inputs")
"""Parameters that are not arguments: the worker fills them in."""

_REFUSED = {
    Parameter.VAR_POSITIONAL: (
        "arguments are stored by name; take a list instead, or let the decorator whose function "
        "this is use functools.wraps"
    ),
    Parameter.POSITIONAL_ONLY: "arguments are stored by name; remove the / from the signature",
}


class Signature:
    """The arguments that a task's function takes.

    `name` is the task's, and error texts begin with its last part. Raise `InvalidJobTypeError`
    for a function whose arguments cannot be given by name.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.short_name = name.rpartition(".")[2]
        self.function = function
        parameters = _parameters(name, function)
        self.names = tuple(p.name for p in parameters)
        self.filled_in = tuple(p.name for p in parameters if p.name in FILLED_IN)
        self._arguments = {p.name: p for p in parameters if p.name not in FILLED_IN}
        self._names = self._arguments.keys()
        self._any_name = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "")
        if self._any_name:
            del self._arguments[self._any_name]
        self.arguments = tuple(self._arguments)
        self.defaults = {
            n: p.default for n, p in self._arguments.items() if p.default is not p.empty
        }
        self.required = [name for name in self.arguments if name not in self.defaults]
        self._required = {*self.required}
        self._in_place = [n for n, p in self._arguments.items() if p.kind is not p.KEYWORD_ONLY]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the given arguments by name; raise `ArgumentsError` if they do not fit."""
        if len(args) > len(self._in_place):
            raise ArgumentsError(
                f"{self.short_name} takes at most {len(self._in_place)} arguments by position, "
                f"and {len(args)} are given: {self.text}"
            )
        given = dict(zip(self._in_place, args, strict=False))
        twice = given.keys() & kwargs.keys()
        if twice:
            raise ArgumentsError(f"{self.short_name}: argument {min(twice)} is given twice.")
        given |= kwargs
        if problem := self._misfit(given):
            raise ArgumentsError(problem)
        return given

    def misfit(self, stored: object) -> str:
        """Return why stored arguments do not fit the function; empty text if they do."""
        if isinstance(stored, dict):
            return self._misfit(stored)
        return (
            f"{self.short_name}: the data of its job is a {type(stored).__name__}; give a dict "
            "of its arguments by name."
        )

    def _misfit(self, given: Mapping[str, Any]) -> str:
        if self._required <= given.keys() <= self._names:  # as nearly always
            return ""
        unknown = given.keys() - self._names
        for name in FILLED_IN:
            if name in unknown:
                return f"{self.short_name}: {name} is no argument; the worker fills it in."
        if unknown and not self._any_name:
            name = min(unknown, key=str)
            return f"{self.short_name} takes no argument {name!r}{self._instead_of(str(name))}"
        if missing := self._required - given.keys():
            first = next(name for name in self.arguments if name in missing)
            return f"{self.short_name}: argument {first} is missing."
        return ""

    def _instead_of(self, name: str) -> str:
        if name in JOB_OPTIONS or name in CALL_OPTIONS:
            return f"; that is an option: {self.short_name}.using({name}=…).enqueue(…)"
        return nearest_name(name, self._names) if self._names else "; it takes none."

    @cached_property
    def text(self) -> str:
        """The signature as it is shown, and stored in the row of the job type.

        For defaults it says only that there is one: their text may differ from start to start.
        """
        parts: list[str] = []
        for name, parameter in self._arguments.items():
            if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
                parts.append("*")
            kind = _annotation(parameter)
            given = "" if parameter.default is parameter.empty else " = …" if kind else "=…"
            parts.append(f"{name}{kind}{given}")
        if self._any_name:
            parts.append(f"**{self._any_name}")
        return f"({', '.join(parts)})"


def _parameters(name: str, function: Callable[..., Any]) -> list[Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise InvalidJobTypeError(
            f"task {name!r}: the signature of {function!r:.200} cannot be read; write a function "
            "in Python that calls it."
        ) from error
    for parameter in parameters:
        if parameter.kind in _REFUSED:
            raise InvalidJobTypeError(
                f"task {name!r}: parameter {parameter} of {function.__qualname__} cannot be an "
                f"argument: {_REFUSED[parameter.kind]}."
            )
    return parameters


def _annotation(parameter: Parameter) -> str:
    kind = parameter.annotation
    if kind is parameter.empty:
        return ""
    return f": {kind if isinstance(kind, str) else inspect.formatannotation(kind)}"
