"""What can be asked for: method, address, permission and fields of a request. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from hipq_django.domain.serialization import sized_json
from hipq_django.exceptions import nearest_name
from hipq_django.flow.web.refusals import RefusedCallError


def _moment(given: Any) -> Any:
    """Return the moment that a text tells; raise `ValueError` for one that tells none."""
    if not isinstance(given, str):
        return given
    moment = datetime.fromisoformat(given)
    if moment.utcoffset() is None:
        raise ValueError("it has no offset")
    return moment


class Kind(NamedTuple):
    """What a field of a body may be. True and False are no numbers."""

    says: str
    types: tuple[type, ...]
    read: Callable[[Any], Any] = lambda value: value
    is_required: bool = False

    @property
    def takes_null(self) -> bool:
        """Whether null is a value; else it is as if the field was not there."""
        return object in self.types

    def checked(self, name: str, value: Any) -> Any:
        """Return the value of a field; raise `RefusedCallError` if it is of another kind."""
        fits = isinstance(value, self.types)
        try:
            if fits and (bool in self.types or not isinstance(value, bool)):
                return self.read(value)
        except ValueError:
            pass
        raise RefusedCallError(422, f"{name}: it is {value!r:.100}; give {self.says}.")


def required(kind: Kind) -> Kind:
    """Return the kind of a field that a body must have."""
    return kind._replace(is_required=True)


ANYTHING = Kind("any JSON", (object, bool))
FLAG = Kind("true or false", (bool,))
LIST = Kind("a list", (list,))
MOMENT = Kind(
    "seconds since 1970, or a time as 2026-12-24T18:00:00+01:00", (int, float, str), _moment
)
NODE = Kind("the id or an alias of a node", (int, str))
NUMBER = Kind("a number", (int, float))
OBJECT = Kind("an object", (dict,))
TEXT = Kind("a text", (str,))
TEXT_OR_OBJECT = Kind("a text or an object", (str, dict))

Fields = Mapping[str, Kind]

RUN: Fields = {"parent": FLAG, "force": FLAG, "at": MOMENT, "wait": NUMBER}
"""What is said of a run, by its own verb or beside another one."""

NODE_ROUTE = "nodes/<str:node>"
PORT_ROUTE = f"{NODE_ROUTE}/<hipq_side:side>/<str:port>"


class Endpoint(NamedTuple):
    """One method of one address."""

    method: str
    route: str
    permission: str
    verb: Callable[[Any], dict[str, Any]]
    fields: Fields = {}
    locks_tree: bool = False
    """Whether its verb locks other nodes beside the one of its address."""

    @property
    def may_run(self) -> bool:
        """Whether its body may let the node of its address run afterwards."""
        names_node = self.route.startswith(NODE_ROUTE)
        return self.method == "POST" and names_node and self.fields is not RUN


def shown_path(route: str) -> str:
    """Return an address as people write it: /nodes/ID/inputs|outputs/PORT/read."""
    text = route.replace("<str:node>", "ID").replace("<str:port>", "PORT")
    return f"/{text.replace('<hipq_side:side>', 'inputs|outputs')}"


# What a body says

MAX_CONTEXT_BYTES = 8_192
"""How large a context may be: it is stored with each of the many messages of a request."""

OF_FLOWS = ("node", "run", "channel")
"""What flows say themselves in the context of a message."""


def checked_fields(body: Any, fields: Fields, where: str = "the body") -> dict[str, Any]:
    """Return what a body says; raise `RefusedCallError` where it says anything wrong."""
    _check_names(body, fields, where)
    said = {}
    for name, kind in fields.items():
        if body.get(name) is not None or (name in body and kind.takes_null):
            said[name] = kind.checked(name, body[name])
        elif kind.is_required:
            raise RefusedCallError(422, f"{where} has no {name!r}; give {kind.says}.")
    return said


def _check_names(body: Any, fields: Fields, where: str) -> None:
    if not isinstance(body, dict):
        raise RefusedCallError(422, f"{where} is not a JSON object.")
    for name in body:
        if name not in fields:
            near = nearest_name(name, fields) if fields else "; it takes none."
            unknown = f"{where} has a field {name!r:.100}, which is unknown{near}"
            raise RefusedCallError(422, unknown)


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
            text = f"context: {name!r} is set by flows themselves; use another name."
            raise RefusedCallError(422, text)
    return context
