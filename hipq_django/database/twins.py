"""Public functions and their twins for async code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
C = TypeVar("C", bound=type)


def has_twin(sync: Callable[P, R]) -> Callable[P, R]:
    """Let a function that is called in async code say which one to await there."""
    return naming_twin(f"hipq_django.{sync.__name__}")(sync)


class naming_twin:  # noqa: N801 - it is used as a function
    """Do the same for what is no public function, but is used by this name.

    `way` says what to write there, if that is no call of a twin. It decorates a function, or opens
    a block, which for each call would take longer than most that it names.
    """

    def __init__(self, name: str, how: str = "await", *, way: str = "") -> None:
        self._said = name, how, way

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, SynchronousOnlyOperation):
            raise in_async_code(*self._said) from error

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except SynchronousOnlyOperation as error:
                raise in_async_code(*self._said) from error

        return call


def in_async_code(name: str, how: str = "await", way: str = "") -> SynchronousOnlyOperation:
    """Return the error of a function that was used in async code; its twin begins with an a."""
    place, _, verb = name.rpartition(".")
    return SynchronousOnlyOperation(
        f"{name} was used in async code, where Django's ORM must not wait for the "
        f"database: {way or f'{how} {place}.a{verb}(…)'} instead."
    )


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

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        done: R = await sync_to_async(getattr(self, name))(*args, **kwargs)
        return done

    call.__name__, call.__doc__ = f"a{name}", method.__doc__
    return call


def property_twin(read: Callable[[S], R]) -> Callable[[S], Coroutine[Any, Any, R]]:
    """Return a method that reads a property in a thread, and is awaited."""

    async def call(self: S) -> R:
        return await sync_to_async(read)(self)

    return call


def names_twins(what: str) -> Callable[[C], C]:
    """Let methods and properties that have twins say so when they are called in async code."""

    def decorate(cls: C) -> C:
        for name, member in list(vars(cls).items()):
            if name.startswith("_") or not hasattr(cls, f"a{name}"):
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(cls, name, member.getter(naming_twin(f"{what}.{name}")(member.fget)))
            elif callable(member):
                setattr(cls, name, naming_twin(f"{what}.{name}")(member))
        return cls

    return decorate
