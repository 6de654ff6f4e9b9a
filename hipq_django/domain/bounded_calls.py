"""Calls of the project's code that a whole pass of a worker waits for; one too long is interrupted.

Python can interrupt only its main thread, from a handler of a signal; there a worker does its
passes. Nothing else is interrupted: in another thread, or another process, the calls are plain.

Another thread looks at the calls at intervals. Its looks are counted, not seconds: while the
process is suspended, no call can return.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from traceback import format_tb
from types import FrameType
from typing import TypeVar

Returned = TypeVar("Returned")


class _Call:
    """A call that goes on, and how often it was seen."""

    __slots__ = ("looks",)

    def __init__(self) -> None:
        self.looks = 0


_calls: dict[int, _Call] = {}
"""By the threads that they are made in."""


class DidNotReturnError(KeyboardInterrupt):
    """A call took too long, and was interrupted.

    As a kind of KeyboardInterrupt it is not caught by `except Exception`, and lets psycopg cancel
    the statement that is being executed.
    """


def where(error: BaseException) -> str:
    """Return where an exception was raised, without any message, which may quote anything."""
    return "".join(format_tb(error.__traceback__))


def bounded(function: Callable[[], Returned]) -> Returned:
    """Call a function of the project; raise `DidNotReturnError` if it is interrupted."""
    thread = get_ident()
    if thread in _calls:  # called by such a call
        return function()
    _calls[thread] = _Call()
    try:
        return function()
    finally:
        del _calls[thread]


def look(thread: int) -> int:
    """Look at the call of a thread; return how often it was seen, 0 where there is none."""
    call = _calls.get(thread)
    if call is None:
        return 0
    call.looks += 1
    return call.looks


def interrupt(frame: FrameType | None, looks: int, seconds: float) -> None:
    """Raise `DidNotReturnError` in a call that was seen so often, which takes so many seconds.

    It is called in the call's thread, which is at `frame`. Never raise in `bounded` itself:
    whatever is raised there leaves the call. What the call does then, for example to cancel a
    statement, has as much time again.
    """
    is_at_code, call = frame and frame.f_code is not bounded.__code__, _calls.get(get_ident())
    if is_at_code and call is not None and call.looks >= looks:
        call.looks = 0
        raise DidNotReturnError(f"did not return within {seconds:g} s")
