"""The names under which classes of exceptions are stored and compared."""

from __future__ import annotations

from functools import lru_cache


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
