"""Tracebacks as text, as `traceback.format_exception` writes them, at a fraction of its cost.

Jobs that fail together mostly fail at the same places, so the text of a place is cached.
"""

from __future__ import annotations

import traceback
from types import CodeType, TracebackType

MAX_PLACES = 2_000
"""How many places are cached."""

_Place = tuple[int, int, int]
"""Identity of the code, instruction and line: where a traceback passes through.

Not the code itself: its hash is made of all its instructions, each time anew.
"""

_texts: dict[_Place, tuple[str, CodeType]] = {}
"""Each with its code, which must live for as long as its identity counts."""

_NOWHERE: tuple[CodeType | None, int] = (None, 0)

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


_EXPLAINED = (SyntaxError, NameError, AttributeError, ImportError)
"""For these Python may show more than their message."""


def format_exception(exception: BaseException) -> str:
    """Return the traceback of an exception and of those that led to it."""
    try:
        before, link = _before(exception)
        text = _text_of_one(exception)
        return text if before is None else f"{_chain(before, [exception])}{link}{text}"
    except _UnusualError:
        return "".join(traceback.format_exception(exception))


def places_of(exception: BaseException) -> str:
    """Return where an exception was raised, without any message, which may quote anything."""
    return "".join(traceback.format_tb(exception.__traceback__))


class _UnusualError(Exception):
    """Python itself has to format this error."""


def _chain(exception: BaseException, behind: list[BaseException]) -> str:
    """Return the text of an exception that led to those `behind`, and of those before it."""
    parts: list[str] = []
    here: BaseException | None = exception
    while here is not None:
        if any(here is seen for seen in behind):
            raise _UnusualError
        behind.append(here)
        parts.append(_text_of_one(here))
        here, link = _before(here)
        parts.append(link)
    return "".join(reversed(parts))


def _before(exception: BaseException) -> tuple[BaseException | None, str]:
    """Return what led to an exception, and what stands between the two."""
    if exception.__cause__ is not None:
        return exception.__cause__, _CAUSE
    if exception.__context__ is not None and not exception.__suppress_context__:
        return exception.__context__, _CONTEXT
    return None, ""


def _text_of_one(exception: BaseException) -> str:
    if isinstance(exception, BaseExceptionGroup):
        raise _UnusualError
    parts: list[str] = []
    place, last = exception.__traceback__, _NOWHERE
    if place is not None:
        parts.append("Traceback (most recent call last):\n")
    while place is not None:
        code, line = here = place.tb_frame.f_code, place.tb_lineno
        if here == last:  # a recursion, of which Python says once what is repeated
            raise _UnusualError
        known = _texts.get((id(code), place.tb_lasti, line))
        parts.append(_remembered(place) if known is None else known[0])
        place, last = place.tb_next, here
    parts.append(_message(exception))
    return "".join(parts)


def _remembered(place: TracebackType) -> str:
    if len(_texts) >= MAX_PLACES:
        _texts.clear()
    text, code = "".join(traceback.format_tb(place, 1)), place.tb_frame.f_code
    _texts[id(code), place.tb_lasti, place.tb_lineno] = text, code
    return text


def _message(exception: BaseException) -> str:
    kind = type(exception)
    if isinstance(exception, _EXPLAINED) or hasattr(exception, "__notes__"):
        # Suggestions are sought among the names of the place where it was raised.
        last = traceback.TracebackException(kind, exception, exception.__traceback__, limit=0)
        return "".join(last.format_exception_only())
    name, module = kind.__qualname__, kind.__module__
    if module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    try:
        message = str(exception)
    except BaseException as error:  # a message may even raise SystemExit
        raise _UnusualError from error
    return f"{name}: {message}\n" if message else f"{name}\n"
