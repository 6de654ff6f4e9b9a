"""Tracebacks as text, as `traceback.format_exception` writes them, at a fraction of its cost.

Jobs that fail together mostly fail at the same places, so the text of the places is cached.
"""

from __future__ import annotations

import traceback
from types import CodeType, TracebackType

MAX_TEXTS = 500
"""How many texts are cached."""

_Places = tuple[tuple[int, int, int], ...]
"""Where a traceback passes through: the identity of the code, the instruction and the line.

Not the code itself: its hash is made of all its instructions, each time anew.
"""

_texts: dict[_Places, tuple[str, list[CodeType]]] = {}
"""Each with its codes, which must live for as long as their identities count."""

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def format_exception(exception: BaseException) -> str:
    """Return the traceback of an exception and of those that led to it."""
    parts: list[str] = []
    seen: list[BaseException] = []
    here: BaseException | None = exception
    link = ""
    while here is not None:
        if isinstance(here, BaseExceptionGroup) or any(here is other for other in seen):
            return "".join(traceback.format_exception(exception))
        seen.append(here)
        message = "".join(traceback.format_exception_only(here))
        parts += (link, message, _text_of_places(here.__traceback__))
        here, link = _before(here)
    return "".join(reversed(parts))


def places_of(exception: BaseException) -> str:
    """Return where an exception was raised, without any message, which may quote anything."""
    return "".join(traceback.format_tb(exception.__traceback__))


def _before(exception: BaseException) -> tuple[BaseException | None, str]:
    """Return what led to an exception, and what stands between the two."""
    if exception.__cause__ is not None:
        return exception.__cause__, _CAUSE
    if exception.__context__ is not None and not exception.__suppress_context__:
        return exception.__context__, _CONTEXT
    return None, ""


def _text_of_places(first: TracebackType | None) -> str:
    places, codes, place = [], [], first
    while place is not None:
        code = place.tb_frame.f_code
        codes.append(code)
        places.append((id(code), place.tb_lasti, place.tb_lineno))
        place = place.tb_next
    known = _texts.get(key := tuple(places))
    if known is None:
        if len(_texts) >= MAX_TEXTS:
            _texts.clear()
        head = "Traceback (most recent call last):\n" if first else ""
        known = _texts[key] = head + "".join(traceback.format_tb(first)), codes
    return known[0]
