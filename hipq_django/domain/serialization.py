"""Which values can be stored as JSON or text, the same on every database."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hipq_django.domain.redaction import Redactor, without_tokens
from hipq_django.domain.tracebacks import format_exception

MAX_DEPTH = 500  # SQLite's JSON functions stop at 1,000 levels.
MAX_ERROR_CHARS = 10_000
MAX_TRACEBACK_CHARS = 100_000


def _encoder(make: Any) -> Callable[[Any], str]:
    """Return `JSONEncoder.encode` without the set-up that it repeats for each value.

    `make` makes Python's C encoder, if it has one. JSONEncoder makes one each time, which takes
    longer than encoding the data of most jobs.
    """
    plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
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

encode_json = _encoder(getattr(json.encoder, "c_make_encoder", None))
"""Return a value as JSON text; raise `ValueError`, `TypeError` or `RecursionError`."""


def _number(text: str) -> float | int:
    """PostgreSQL reads 1e+23 back as a whole number, so it is stored as one."""
    return int(float(text)) if "e+" in text else float(text)


_DECODER = json.JSONDecoder(parse_float=_number)


def to_json(value: Any) -> Any:
    """Return a copy of `value` as it will be read back from the database.

    Tuples become lists and keys become text. Raise `ValueError`, saying why, for what JSON or
    one of the databases cannot hold: objects, NaN and infinity, NUL, lone surrogates, values
    nested deeper than 500 levels.
    """
    return sized_json(value)[0]


def sized_json(value: Any) -> tuple[Any, int]:
    """Return the same and how many bytes it has as text."""
    if value is None:
        return None, 4
    text, size = _encode(value)
    return _DECODER.raw_decode(text)[0], size


def _encode(value: Any) -> tuple[str, int]:
    try:
        text = encode_json(value)
        size = len(text.encode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply or contains itself") from error
    except UnicodeEncodeError as error:
        raise ValueError("it holds a lone surrogate, which is not text") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}; use None, bool, int, float, str, list and dict") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if "\\u0000" in text:
        _check_nul(value)
    return text, size


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _check_nul(value: Any) -> None:
    level = [value]
    while level:
        if any("\0" in text for text in level if isinstance(text, str)):
            raise ValueError("it holds the NUL character, which databases refuse in text")
        level = [child for parent in level for child in _children(parent)]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple) else []


def storable_text(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """Return `text` without what databases refuse, cut to `limit` characters."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if not clean.isascii():
        clean = clean.encode(errors="replace").decode()
    return clean if len(clean) <= limit else f"{clean[:limit]}… ({len(clean)} characters)"


def error_of(exception: BaseException, redactor: Redactor | None = None) -> str:
    """Return the text of an exception for a job's `error`: its class and message."""
    name = type(exception).__name__
    try:
        message = str(exception)
    except BaseException as broken:  # a message may even raise SystemExit
        message = f"its message cannot be read: {type(broken).__name__}"
    text = f"{name}: {message}" if message else f"exception {name}"
    return storable_text(without_tokens(redactor.mask_text(text) if redactor else text))


def traceback_of(exception: BaseException, redactor: Redactor | None = None) -> str:
    """Return the traceback as text, the last 100,000 characters of it."""
    try:
        text = format_exception(exception)
    except BaseException as broken:
        text = f"the traceback cannot be read: {type(broken).__name__}"
    # Masked before it is cut, or a part of a value could remain at the end.
    text = redactor.mask_text(text) if redactor else text
    return storable_text(without_tokens(text)[-MAX_TRACEBACK_CHARS:], MAX_TRACEBACK_CHARS)
