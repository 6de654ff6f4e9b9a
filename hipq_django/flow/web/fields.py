"""What a body may say: its fields, and of which kind they are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from hipq_django.domain.serialization import sized_json, to_json
from hipq_django.exceptions import nearest_name
from hipq_django.flow.web.refusals import RefusedCallError


class Kind(NamedTuple):
    """What a field may be. True and False are no numbers."""

    says: str
    types: tuple[type, ...]

    def fits(self, value: Any) -> bool:
        """Return whether a value of JSON is of this kind."""
        return isinstance(value, self.types) and (not isinstance(value, bool) or bool in self.types)


ANYTHING = Kind("any JSON", (object, bool))
FLAG = Kind("true or false", (bool,))
LIST = Kind("a list", (list,))
MOMENT = Kind("seconds since 1970, or a time as 2026-12-24T18:00:00+01:00", (int, float, str))
NODE = Kind("the id or an alias of a node", (int, str))
NUMBER = Kind("a number", (int, float))
OBJECT = Kind("an object", (dict,))
TEXT = Kind("a text", (str,))
TEXT_OR_OBJECT = Kind("a text or an object", (str, dict))


class Field(NamedTuple):
    """One field of a body."""

    kind: Kind
    required: bool = False


def required(kind: Kind) -> Field:
    """Return a field that a body must have."""
    return Field(kind, required=True)


Fields = Mapping[str, Field]

RUN: Fields = {
    "parent": Field(FLAG),
    "force": Field(FLAG),
    "at": Field(MOMENT),
    "wait": Field(NUMBER),
}
"""What is said of a run, by its own verb or beside another one."""

MAX_CONTEXT_BYTES = 8_192
"""How large a context may be: it is stored with each of the many messages of a request."""

OF_FLOWS = ("node", "run", "channel")
"""What flows say themselves in the context of a message."""


def checked_fields(body: Any, fields: Fields, where: str = "the body") -> dict[str, Any]:
    """Return what a body says; raise `RefusedCallError` where it says anything wrong.

    A null is as if the field was not there, but where anything may be.
    """
    _check_names(body, fields, where)
    said = {
        name: value
        for name, value in body.items()
        if value is not None or fields[name].kind is ANYTHING
    }
    for name, field in fields.items():
        if name in said and not field.kind.fits(said[name]):
            wrong = f"{name}: it is {said[name]!r:.100}; give {field.kind.says}."
            raise RefusedCallError(422, wrong)
        if field.required and name not in said:
            raise RefusedCallError(422, f"{where} has no {name!r}; give {field.kind.says}.")
    return said


def _check_names(body: Any, fields: Fields, where: str) -> None:
    if not isinstance(body, dict):
        raise RefusedCallError(422, f"{where} is not a JSON object.")
    for name in body:
        if name not in fields:
            near = nearest_name(name, fields) if fields else "; it takes none."
            raise RefusedCallError(
                422, f"{where} has a field {name!r:.100}, which is unknown{near}"
            )


def storable(body: Any) -> Any:
    """Return a body as it is stored; raise `RefusedCallError` for what no database can hold."""
    try:
        return to_json(body)
    except ValueError as error:
        raise RefusedCallError(422, f"the body cannot be stored: {error}.") from error


def checked_context(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the context of a body; raise `RefusedCallError` for one that is too large.

    Or for one that pretends to come from a node.
    """
    size = sized_json(context)[1]
    if size > MAX_CONTEXT_BYTES:
        text = f"context: it has {size:,} bytes as JSON, at most {MAX_CONTEXT_BYTES:,} are taken."
        raise RefusedCallError(413, text)
    for name in OF_FLOWS:
        if name in context:
            raise RefusedCallError(
                422, f"context: {name!r} is set by flows themselves; use another name."
            )
    return context


def read_moment(given: Any) -> Any:
    """Return the moment that a text tells; raise `RefusedCallError` for one that tells none."""
    if not isinstance(given, str):
        return given
    moment = _moment(given)
    if moment is None or moment.utcoffset() is None:
        raise RefusedCallError(422, f"at: it is {given!r:.100}; give {MOMENT.says}.")
    return moment


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
