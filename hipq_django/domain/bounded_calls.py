"""Calls of the project's code that a whole pass of a worker waits for; one too long is interrupted.

Python can interrupt only its main thread, from a handler of a signal; there a worker does its
passes. Nothing else is interrupted: in another thread, or another process, the calls are plain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from traceback import format_tb
from types import FrameType
from typing import TypeVar

Returned = TypeVar("Returned")

_began: dict[int, float] = {}
"""When each thread has entered such a call."""


class DidNotReturnError(KeyboardInterrupt):
    """A call took too long, and was interrupted.

    As a kind of KeyboardInterrupt it is not caught by `except Exception`, and lets psycopg cancel
    the statement that is being executed.
    """

    @property
    def traceback(self) -> str:
        """Where it was; without messages of other exceptions, which may quote anything."""
        return "".join(format_tb(self.__traceback__))


def bounded(function: Callable[[], Returned]) -> Returned:
    """Call a function of the project; raise `DidNotReturnError` if it is interrupted."""
    thread = threading.get_ident()
    if thread in _began:  # called by such a call
        return function()
    _began[thread] = time.monotonic()
    try:
        return function()
    finally:
        del _began[thread]


def is_overdue(thread: int, seconds: float) -> bool:
    """Return whether a thread has been in such a call for longer than so many seconds."""
    began = _began.get(thread)
    return began is not None and time.monotonic() - began > seconds


def interrupt(frame: FrameType | None, seconds: float) -> None:
    """Raise `DidNotReturnError` in an overdue call; called in its thread, which is at `frame`.

    Never in `bounded` itself: whatever is raised there leaves the call. What the call does then,
    for example to cancel a statement, has as much time again.
    """
    is_at_code, thread = frame and frame.f_code is not bounded.__code__, threading.get_ident()
    if is_at_code and is_overdue(thread, seconds):
        _began[thread] = time.monotonic()
        raise DidNotReturnError(f"did not return within {seconds:g} s")
