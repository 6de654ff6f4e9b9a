"""Exceptions that stand, in logs and signals, for others, which are gone or never were.

An attempt that timed out, lost its worker or was answered with an error raised nothing. One about
which code of the project decides later raised an exception, of which its class, its text and its
traceback are stored: keeping it would keep its frames, and another process may decide. And the
text of one may quote sensitive values.

Error trackers group what they get by class and place. So a stand-in has the class's name and the
places of the traceback, or else the place of the job type's handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any

from hipq_django.domain.class_names import class_names, dotted_name
from hipq_django.domain.serialization import encode_json
from hipq_django.domain.tracebacks import Step, steps_of, through
from hipq_django.exceptions import ErrorAnswer, HipqError, JobTimeout, WorkerLost


class StoredError(HipqError):
    """The base of the stand-ins for exceptions of which only class and text are stored."""


_OWN = {dotted_name(kind): kind for kind in (JobTimeout, WorkerLost, ErrorAnswer)}


def stand_in(classes: Sequence[str], error: Any, place: TracebackType | None) -> HipqError:
    """Return an exception of the first of these classes, or of one with its name.

    It is a new one each time, because Sentry drops one that it has just got.
    """
    name = classes[0] if classes else dotted_name(StoredError)
    kind = _OWN.get(name) or _named(name)
    return kind(_message(kind.__name__, error)).with_traceback(place)


def stand_in_for(exception: BaseException, text: str) -> HipqError:
    """Return an exception with the class's name and the places of another one, and this text."""
    return stand_in(class_names(type(exception)), text, exception.__traceback__)


@lru_cache(maxsize=2_000)
def _named(name: str) -> type[HipqError]:
    module, _, short_name = name.rpartition(".")
    return type(short_name, (StoredError,), {"__module__": module})


def _message(name: str, error: Any) -> str:
    """Return the text of an exception from an error of a job, which begins with its class."""
    if not isinstance(error, str):
        return encode_json(error)
    return "" if error == f"exception {name}" else error.removeprefix(f"{name}: ")


def place_of(traceback: str, job_type: str, handler: Callable[..., Any] | None) -> TracebackType:
    """Return the places of a stored traceback; without one, where a job type's handler begins.

    The latter goes by the name of the job type: several may have one handler.
    """
    return through(steps_of(traceback) or (_beginning(job_type, handler),))


def _beginning(job_type: str, handler: Callable[..., Any] | None) -> Step:
    code = getattr(inspect.unwrap(handler), "__code__", None) if handler else None
    if code is None:
        return f"<job type {job_type}>", 1, job_type
    return code.co_filename, code.co_firstlineno, job_type
