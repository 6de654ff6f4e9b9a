"""Tracebacks as text, as `traceback.format_exception` writes them, at a fraction of its cost.

Jobs that fail together mostly fail at the same places: what is said of a place is remembered.
"""

from __future__ import annotations

import traceback
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

MAX_PLACES = 2_000
"""So many places are remembered."""

_Place = tuple[str, CodeType, int, int]
"""File, code, instruction and line: where a traceback passes through."""

_texts: dict[_Place, str] = {}

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


def format_exception(exception: BaseException) -> str:
    """Return the traceback of an exception and of those that led to it."""
    try:
        return "".join(_chain(exception))
    except _UnusualError:
        return "".join(traceback.format_exception(exception))


class _UnusualError(Exception):
    """Python knows better how to write this down."""


def _chain(exception: BaseException) -> Iterator[str]:
    """Yield the parts of the text, what came first first."""
    chain: list[tuple[BaseException, str]] = []
    here: BaseException | None = exception
    while here is not None:
        if isinstance(here, BaseExceptionGroup) or any(here is seen for seen, _ in chain):
            raise _UnusualError
        before, link = _before(here)
        chain.append((here, link))
        here = before
    for one, link in reversed(chain):
        yield link
        yield from _places(one.__traceback__)
        last = traceback.TracebackException(type(one), one, one.__traceback__, limit=0)
        yield from last.format_exception_only()


def _before(exception: BaseException) -> tuple[BaseException | None, str]:
    """Return what led to an exception, and what stands between the two."""
    if exception.__cause__ is not None:
        return exception.__cause__, _CAUSE
    if exception.__context__ is not None and not exception.__suppress_context__:
        return exception.__context__, _CONTEXT
    return None, ""


def _places(place: TracebackType | None) -> Iterator[str]:
    if place is not None:
        yield "Traceback (most recent call last):\n"
    known: _Place | None = None
    while place is not None:
        code = place.tb_frame.f_code
        here = (code.co_filename, code, place.tb_lasti, place.tb_lineno)
        if here == known:  # a recursion, of which Python says once what is repeated
            raise _UnusualError
        yield _text_of(here, place)
        place, known = place.tb_next, here


def _text_of(here: _Place, place: TracebackType) -> str:
    text = _texts.get(here)
    if text is None:
        if len(_texts) >= MAX_PLACES:
            _texts.clear()
        text = _texts[here] = "".join(traceback.format_tb(place, 1))
    return text
