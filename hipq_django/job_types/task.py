"""`task`: declares a plain function whose arguments are stored, and which a worker calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async

from hipq_django.conf.instances import get_arguments
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import BoundJob, TypeOptions, split_options, unstored_options
from hipq_django.domain.redaction import without_values
from hipq_django.domain.signature import FILLED_IN, Signature
from hipq_django.exceptions import (
    ArgumentsError,
    InvalidJobTypeError,
    StoredArgumentsError,
    nearest_name,
)
from hipq_django.job_types.current import current_job
from hipq_django.job_types.declaration import (
    DEFAULT_QUEUE,
    Declaration,
    check_is_function,
    checked_values,
)
from hipq_django.job_types.registry import register

if TYPE_CHECKING:
    from hipq_django.models import Job

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="Callable[..., Any]")

_WITHOUT_A_NAME = ("<locals>", "<lambda>")


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    instance: str = DEFAULT,
    **options: Unpack[TypeOptions],
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = DEFAULT_QUEUE,
    instance: str = DEFAULT,
    **options: Any,
) -> Any:
    """Declare the decorated function as a task: a job type whose jobs store its arguments.

    The name of the task is `name` or, by default, the path of the function. Options are those of
    `job_type`. The parameters `job` and `inputs` are filled in by the worker; all others are
    arguments, given to `.enqueue` and stored as JSON (setting ARGUMENTS). The function returns
    JSON, and may be `async def`. Calling the task calls the function, nothing else.
    """

    def declare(function: Callable[..., Any]) -> Task[..., Any]:
        check_is_function(name or repr(function), function)
        values = checked_values(_name_of(function, name), queue, instance, options)  # type: ignore[arg-type]  # it checks them
        return register(Task(handler=function, **values))

    return declare if function is None else declare(function)


@dataclass(eq=False)
class Task(Declaration, Generic[P, R]):
    """A declared task, which replaces the decorated function."""

    def __post_init__(self) -> None:
        Declaration.__post_init__(self)
        self._function = self.handler
        self._signature = Signature(self.name, self._function)
        self.signature = self._signature.text
        self.handler = self._called_by_worker(self._function)
        if self.schedules and self._signature.required:
            first = self._signature.required[0]
            raise InvalidJobTypeError(
                f"task {self.name!r} has a schedule, but its argument {first} has no default; give "
                "it one, or call hipq_django.schedule(name, task.new(…), …)."
            )
        for name in (self.unique.on or ()) if self.unique else ():
            if name not in self._signature.arguments:
                near = nearest_name(name, self._signature.arguments)
                raise InvalidJobTypeError(
                    f"task {self.name!r}: unique_on names {name!r}, which is no argument{near}"
                )

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; `job` and `inputs` are the current job's, or None and [] outside of
        one."""
        given = {*self._signature.names[: len(args)], *kwargs}
        left = [name for name in self._signature.filled_in if name not in given]
        job = current_job()
        if job is not None and "inputs" in left and inspect.iscoroutinefunction(self._function):
            return self._called_with_inputs(job, args, kwargs)  # type: ignore[return-value]  # it is R
        return self._function(*args, **kwargs, **_filled_in(left, job))  # type: ignore[no-any-return]  # it is R

    async def _called_with_inputs(
        self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        inputs = await job.afirst_inputs()
        return await self(*args, **kwargs, inputs=inputs)  # type: ignore[arg-type,misc]  # it takes them

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue a job that calls the function with these arguments; return it.

        Raise `ArgumentsError`, with nothing stored, if they do not fit.
        """
        from hipq_django.api.enqueueing import enqueue_new  # it stands above

        of_job, of_call = split_options(self.name, self.options)
        return enqueue_new(self._new(args, kwargs, of_job), instance=self.instance, **of_call)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue in async code."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> BoundJob:
        """Return a job that is not stored yet, for `enqueue_many`; the arguments are checked."""
        return self._new(args, kwargs, unstored_options(self.name, self.options))

    def _new(self, args: Any, kwargs: Any, options: dict[str, Any]) -> BoundJob:
        return BoundJob(self.name, self.bound(args, kwargs), instance=self.instance, **options)

    def on_response(self, handler: H) -> H:
        """Declare the response handler: it takes any of `response`, `job` and the arguments."""
        self.set_response_handler(self._called_with(handler, "response"))
        return handler

    def on_error(self, handler: H) -> H:
        """Declare the retry handler: it takes any of `job` and the arguments.

        It returns RetryIn, RetryAt, GiveUp or None.
        """
        self.set_retry_handler(self._called_with(handler))
        return handler

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments, without those that only `**kwargs` takes."""
        return self._signature.arguments

    def checked_data(self, job_data: Any) -> Any:
        """Return the stored arguments of a new job; raise `ArgumentsError` if they do not fit."""
        if problem := self._signature.misfit(job_data):
            raise ArgumentsError(problem)
        return self.dumped(job_data)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return given arguments as they are stored; raise `ArgumentsError` if they cannot be."""
        return self.dumped(self._signature.bind(args, kwargs))

    def dumped(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments as JSON."""
        try:
            return get_arguments(self.instance).dump(self._function, arguments)
        except (ValueError, TypeError) as error:
            cause = None if self.sensitive else error  # it may quote a sensitive value
            raise ArgumentsError(self._said(error, arguments)) from cause

    def _loaded(self, job: Job) -> dict[str, Any]:
        """Return the arguments of a job; raise `StoredArgumentsError` if they do not fit."""
        if problem := self._signature.misfit(job.job_data):
            raise StoredArgumentsError(problem)
        try:
            return get_arguments(self.instance).load(self._function, job.job_data)
        except (ValueError, TypeError) as error:
            raise StoredArgumentsError(self._said(error, job.job_data)) from error

    def _said(self, error: Exception, arguments: dict[str, Any]) -> str:
        """Return the text of an error of the converter, which may quote the arguments."""
        text = f"{self._signature.short_name}: {error}"
        return without_values(text, self.sensitive, arguments)

    def _called_by_worker(self, function: Callable[..., Any]) -> Callable[[Job], Any]:
        """Return the handler of a task's jobs."""
        names = self._signature.filled_in

        @wraps(function)
        def handler(job: Job) -> Any:
            return function(**self._loaded(job), **_filled_in(names, job))

        return handler

    def _called_with(self, handler: Callable[..., Any], *given: str) -> Callable[..., Any]:
        """Return what calls a handler with what it asks for of `given`, `job` and the arguments."""
        check_is_function(self.name, handler)
        named = [*given, *FILLED_IN, *self._signature.arguments]
        asked = list(_asked_for(self.name, handler, named))
        takes_all = any(
            p.kind is p.VAR_KEYWORD for p in inspect.signature(handler).parameters.values()
        )
        defaults = self._signature.defaults

        @wraps(handler)
        def call(job: Job, *values: Any) -> Any:
            known = {**defaults, **self._loaded(job), "job": job}
            if "inputs" in asked:
                known["inputs"] = job.first_inputs()
            known |= dict(zip(given, values, strict=True))
            if takes_all:
                return handler(**known)
            return handler(**{name: known[name] for name in asked if name in known})

        return call


def _filled_in(names: Collection[str], job: Job | None) -> dict[str, Any]:
    """Return what a function gets beside its arguments."""
    if not names:  # as most
        return {}
    values: dict[str, Any] = {"job": job, "inputs": []}
    if "inputs" in names and job is not None:
        values["inputs"] = job.first_inputs()
    return {name: values[name] for name in names}


def _name_of(function: Callable[..., Any], name: str | None) -> str:
    if name is not None:
        return name
    called = getattr(function, "__qualname__", repr(function))
    where, way_out = "", 'give it a name: @hipq.task(name="shop.send_invoice")'
    if any(part in called for part in _WITHOUT_A_NAME):
        where = "inside a function"
        way_out += ". If it is that of a decorator, let the decorator use functools.wraps"
    elif function.__module__ == "__main__":
        where, way_out = "in __main__", f"move it to the module jobs of an app, or {way_out}"
    if where:
        raise InvalidJobTypeError(
            f"task {called!r} is defined {where}, where workers cannot find it; {way_out}."
        )
    return f"{function.__module__}.{called}"


def _asked_for(task: str, handler: Callable[..., Any], known: list[str]) -> Iterator[str]:
    """Yield the parameters of a handler; raise `InvalidJobTypeError` for an unknown one."""
    for name, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from known
        elif name in known and parameter.kind is not parameter.POSITIONAL_ONLY:
            yield name
        elif parameter.default is parameter.empty:
            raise InvalidJobTypeError(
                f"task {task!r}: handler {handler.__qualname__} asks for {parameter}, which it is "
                f"not given{nearest_name(name, known)}"
            )
