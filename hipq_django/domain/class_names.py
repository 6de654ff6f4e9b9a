"""The names under which classes of exceptions are stored, and exceptions made by such a name.

An attempt that timed out, lost its worker or was answered with an error raised nothing. One about
which code of the project decides later raised an exception, of which its class, its text and its
traceback are stored: keeping it would keep its frames, and another process may decide. And the
text of one may quote sensitive values. What is made in their place has the name of the class, by
which error trackers group what they get.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hipq_django.domain.serialization import encode_json
from hipq_django.exceptions import ErrorAnswer, HipqError, JobTimeout, WorkerLost


class StoredError(HipqError):
    """The base of exceptions of which only class and text are stored."""


def dotted_name(kind: type) -> str:
    """Return the name of a class with that of its module."""
    return _dotted_name(kind)


def class_names(kind: type) -> tuple[str, ...]:
    """Return the names of an exception class and of all its bases."""
    return _class_names(kind)


# Without the cache in their type, which takes classes of exceptions for unhashable.


@lru_cache(maxsize=2_000)
def _dotted_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@lru_cache(maxsize=2_000)
def _class_names(kind: type) -> tuple[str, ...]:
    return tuple(dotted_name(base) for base in kind.__mro__ if base is not object)


_OWN = {dotted_name(kind): kind for kind in (JobTimeout, WorkerLost, ErrorAnswer)}


def stored_exception(classes: Sequence[str], error: Any) -> HipqError:
    """Return an exception of the first of these classes, or of one with its name.

    It is a new one each time, because Sentry drops one that it has just got.
    """
    name = classes[0] if classes else dotted_name(StoredError)
    kind = _OWN.get(name) or _named(name)
    return kind(_message(kind.__name__, error))


def with_text(exception: BaseException, text: str) -> HipqError:
    """Return an exception with the class's name and the places of another one, and this text."""
    made = stored_exception(class_names(type(exception)), text)
    return made.with_traceback(exception.__traceback__)


@lru_cache(maxsize=2_000)
def _named(name: str) -> type[HipqError]:
    module, _, short_name = name.rpartition(".")
    return type(short_name, (StoredError,), {"__module__": module})


def _message(name: str, error: Any) -> str:
    """Return the text of an exception from an error of a job, which begins with its class."""
    if not isinstance(error, str):
        return encode_json(error)
    return "" if error == f"exception {name}" else error.removeprefix(f"{name}: ")
