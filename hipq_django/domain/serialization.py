"""Which values can be stored as JSON or text, the same on every database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from math import isfinite
from typing import Any, NamedTuple

from hipq_django.domain.tokens import without_tokens
from hipq_django.domain.tracebacks import format_exception

MAX_DEPTH = 500  # SQLite's JSON functions stop at 1,000 levels.
MAX_ERROR_CHARS = 10_000
MAX_TRACEBACK_CHARS = 100_000

CUT = "… "
"""How a text begins whose beginning was cut."""


def _encoder(make: Any, default: Callable[[Any], Any] | None = None) -> Callable[[Any], str]:
    """Return `JSONEncoder.encode` without the set-up that it repeats for each value.

    `make` makes Python's C encoder, if it has one. JSONEncoder makes one each time, which takes
    longer than encoding the data of most jobs. `default` is what it calls for other values.
    """
    plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=default)
    if make is None:  # a Python without the C encoder
        return plain.encode
    escape = json.encoder.encode_basestring
    try:
        encode = make(None, plain.default, escape, None, ": ", ", ", False, False, False)
        works = "".join(encode(_SAMPLE, 0)) == plain.encode(_SAMPLE)
    except TypeError:  # it is private, and may take something else in another Python
        works = False
    return (lambda value: "".join(encode(value, 0))) if works else plain.encode


_SAMPLE = {"text": "\u00e9", "list": [1, 1.5, True, None], "dict": {}}

_MAKE = getattr(json.encoder, "c_make_encoder", None)

encode_json = _encoder(_MAKE)
"""Return a value as JSON text; raise `ValueError`, `TypeError` or `RecursionError`."""

encode_parameters = _encoder(_MAKE, str)
"""Do the same with parameters of a statement, of which some are no JSON: they become text."""


def _number(text: str) -> float | int:
    """PostgreSQL reads 1e+23 back as a whole number, so it is stored as one."""
    return int(float(text)) if "e+" in text else float(text)


_DECODER = json.JSONDecoder(parse_float=_number)


def to_json(value: Any) -> Any:
    """Return a copy of `value` as it will be read back from the database.

    Tuples become lists and keys become text. Raise `NotJsonError`, saying what and where, for what
    JSON or one of the databases cannot hold: objects, NaN and infinity, NUL, lone surrogates,
    values nested deeper than 500 levels, two keys that become the same text.
    """
    return json_with_text(value)[0]


def sized_json(value: Any) -> tuple[Any, int]:
    """Return the same and how many bytes it has as text."""
    stored, _, size = json_with_text(value)
    return stored, size


def json_with_text(value: Any) -> tuple[Any, str, int]:
    """Return the same, the copy as text for PostgreSQL, and the bytes.

    The text is empty where the copy may have another number.
    """
    if value is None:
        return None, "null", 4
    text, size = _encode(value)
    copy = _DECODER.decode(text)
    if copy != value:  # a copy of dicts whose keys are all text is equal, and that is soon known
        _check_keys(value)
    return copy, "" if "e+" in text else text, size


class NotJsonError(ValueError):
    """A value cannot be stored as JSON: `bad`, at a `place` in it such as `['lines'][3]`."""

    def __init__(self, reason: str, place: str = "", bad: Any = None) -> None:
        super().__init__(f"{place or 'it'} {reason}")
        self.reason = reason
        self.place = place
        self.bad = bad


def _encode(value: Any) -> tuple[str, int]:
    try:
        text = encode_json(value)
        size = len(text.encode())
    except RecursionError as error:
        raise NotJsonError("is nested too deeply or contains itself") from error
    except (TypeError, ValueError) as error:
        _check_parts(value)
        raise NotJsonError(f"cannot be encoded: {error}; {_JSON}") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if "\\u0000" in text:
        _check_parts(value)
    return text, size


def _check_keys(value: Any) -> None:
    """Refuse keys that become the same text: one of the entries would be lost."""
    for place, part in places_in(value):
        texts: dict[str, Any] = {}
        for key in part if isinstance(part, dict) else ():
            text = key if isinstance(key, str) else next(iter(json.loads(encode_json({key: 0}))))
            if (other := texts.setdefault(text, key)) is not key:
                reason = f"has the keys {other!r} and {key!r}, which are the same as text"
                raise NotJsonError(f"{reason}; rename one of them", str(place), part)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise NotJsonError(f"is nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


_JSON = "use None, bool, int, float, str, list and dict"


def _check_parts(value: Any) -> None:
    for place, part in places_in(value):
        if reason := _fault(part):
            raise NotJsonError(reason, str(place), part)


class Place(NamedTuple):
    """Where a part is in a value; as text such as `['lines'][3]`, which is made only to be told.

    The texts of all places in a deep value would be many times longer than the value.
    """

    above: Place | None = None
    key: Any = None

    def __str__(self) -> str:
        keys, place = [], self
        while place.above is not None:
            keys.append(f"[{place.key!r:.100}]")
            place = place.above
        return "".join(reversed(keys))


def places_in(value: Any) -> Iterator[tuple[Place, Any]]:
    """Yield a value and all that is in it, each with its place, in the order of its text.

    Of a list or dict that is in several places, or in itself, the parts are yielded once.
    """
    stack: list[tuple[Place, Any]] = [(Place(), value)]
    seen: set[int] = set()
    while stack:
        place, part = stack.pop()
        yield place, part
        if id(part) in seen:
            continue
        if isinstance(part, list | tuple | dict):
            seen.add(id(part))
        keys = part.keys() if isinstance(part, dict) else count()
        inside = zip(keys, _children(part), strict=False)
        stack += reversed([(Place(place, key), child) for key, child in inside])


def _fault(value: Any) -> str:
    """Return why a value by itself, without what is in it, is not JSON; '' if it is."""
    if isinstance(value, dict):
        return next((said for key in value if (said := _fault_of_key(key))), "")
    if isinstance(value, float) and not isfinite(value):
        return f"is {value}, which JSON does not have; use None or text"
    if isinstance(value, str):
        return "" if is_storable(value) else "holds NUL or a lone surrogate, which is no text"
    is_json = value is None or isinstance(value, int | float | list | tuple)
    return "" if is_json else f"is of type {type(value).__name__}; {_JSON}"


def _fault_of_key(key: Any) -> str:
    if key is None or isinstance(key, str | int | float):
        said = _fault(key)
        return said and f"has a key that {said}"
    return f"has a key of type {type(key).__name__}; use text"


def is_storable(text: str) -> bool:
    """Return whether every database takes a text: it holds no NUL and no lone surrogate."""
    return storable_text(text, len(text)) == text


def storable_text(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """Return `text` without what databases refuse, cut to `limit` characters."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not clean.isascii():
        clean = clean.encode(errors="replace").decode()
    return clean if len(clean) <= limit else f"{clean[:limit]}… ({len(clean)} characters)"


def text_of_code(text: str) -> str:
    """Return what is stored of a text from a project's code."""
    return storable_text(without_tokens(text))


def json_without_tokens(value: Any) -> Any:
    """Return JSON without the signatures of the callback URLs that it quotes."""
    text = encode_json(value)
    shown = without_tokens(text)
    return value if shown == text else _DECODER.raw_decode(shown)[0]


def error_of(exception: BaseException) -> str:
    """Return the text of an exception for a job's `error`: its class and message."""
    name = type(exception).__name__
    try:
        message = str(exception)
    except BaseException as broken:  # a message may even raise SystemExit
        message = f"its message cannot be read: {type(broken).__name__}"
    return text_of_code(f"{name}: {message}" if message else f"exception {name}")


def repr_of(value: object) -> str:
    """Return how an object of the project is shown; its class, if that raises."""
    try:
        return repr(value)
    except BaseException as broken:  # it may even raise SystemExit
        return f"<{type(value).__name__}, whose repr raises {type(broken).__name__}>"


def traceback_of(exception: BaseException) -> str:
    """Return the traceback as text, the last 100,000 characters of it."""
    try:
        text = format_exception(exception)
    except BaseException as broken:
        text = f"the traceback cannot be read: {type(broken).__name__}"
    text = without_tokens(text)
    if len(text) > MAX_TRACEBACK_CHARS:
        text = CUT + text[len(CUT) - MAX_TRACEBACK_CHARS :]
    return storable_text(text, MAX_TRACEBACK_CHARS)
