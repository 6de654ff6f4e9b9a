"""Twins for async code, which do the same in a thread: `aname = method_twin(name)`.

In async code Django refuses whatever would wait for the database.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def block_twin(
    block: Callable[P, AbstractContextManager[R]],
) -> Callable[P, AbstractAsyncContextManager[R]]:
    """Return the twin of a `with` block: it begins and ends in a thread."""

    @asynccontextmanager
    async def enter(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        opened = await sync_to_async(block)(*args, **kwargs)
        value = await sync_to_async(opened.__enter__)()
        try:
            yield value
        except BaseException as error:
            if not await sync_to_async(opened.__exit__)(type(error), error, error.__traceback__):
                raise
        else:
            await sync_to_async(opened.__exit__)(None, None, None)

    return enter


def method_twin(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the twin of a method: it does the same in a thread, and is awaited.

    A subclass that overrides the method has the right twin, too.
    """
    name = method.__name__

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        done: R = await sync_to_async(getattr(self, name))(*args, **kwargs)
        return done

    call.__name__ = f"a{name}"
    return call


def property_twin(read: Callable[[S], R]) -> Callable[[S], Coroutine[Any, Any, R]]:
    """Return a method that reads a property in a thread, and is awaited."""

    async def call(self: S) -> R:
        return await sync_to_async(read)(self)

    return call
