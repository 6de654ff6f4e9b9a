"""A declaration: the code of a job type, and the defaults of its jobs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from django.utils.functional import cached_property

from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import EnqueueOptions, TypeOptions, split_options
from hipq_django.domain.job_options import DEFAULTS, OF_TYPES, in_json
from hipq_django.domain.redaction import checked_fields
from hipq_django.domain.schedules import Cron, Every, checked_schedule_name, spec_of
from hipq_django.domain.uniqueness import Unique, checked_unique
from hipq_django.domain.validation import (
    checked_max_timeout,
    checked_name,
    checked_type_name,
)
from hipq_django.exceptions import (
    InvalidJobError,
    InvalidJobTypeError,
    InvalidScheduleError,
    UnknownOptionError,
)
from hipq_django.job_types.by_key import VerbsByKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.domain.retries import RetryPolicy

    Handler = Callable[..., Any]

DEFAULT_QUEUE = "default"
TYPE_OPTIONS = tuple(TypeOptions.__annotations__)


@dataclass(eq=False)
class Declaration(VerbsByKey):
    """A declared job type: its code and the defaults of its jobs.

    `handler(job)`, `response_handler(job, response)` and `retry_handler(job)` are what a worker
    calls, whatever arguments the project's functions take. This code also runs jobs of the
    `aliases`.
    """

    name: str
    handler: Handler
    instance: str = DEFAULT
    queue: str = DEFAULT_QUEUE
    defaults: dict[str, Any] = field(default_factory=DEFAULTS.copy)
    """The defaults of its jobs, by the columns of its row."""
    policy: RetryPolicy | None = None
    max_timeout: float | None = None
    sensitive: tuple[str, ...] = ()
    counted_answers: bool = False
    aliases: tuple[str, ...] = ()
    unique: Unique | None = None
    schedules: dict[str, Cron | Every] = field(default_factory=dict)
    signature: str = ""
    """What the function of a task takes; empty for a job type whose handler takes the job."""
    kind: str = ""
    """How workers find this code where nobody has declared it; empty: not at all."""
    response_handler: Handler | None = None
    retry_handler: Handler | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Those of the next jobs that are enqueued with it; see `using`."""
    checks_data: ClassVar[bool] = False
    """Whether `checked_data` has to be asked, although there is no signature."""

    def __post_init__(self) -> None:
        self.__doc__ = self.handler.__doc__
        self.__module__ = self.handler.__module__
        self.__qualname__ = self.handler.__qualname__
        # For tools that look at functions: they show its name, signature and source.
        self.__name__ = self.function_name
        self.__wrapped__ = self.handler

    def __reduce__(self) -> str:
        """Let it be pickled and copied as the function is that it replaces: by its path."""
        return self.__qualname__

    @cached_property
    def as_declared(self) -> dict[str, Any]:
        """What the code says of the row, as JSON has it."""
        return in_json({"queue": self.queue, **self.defaults})

    @property
    def function_name(self) -> str:
        """What it is called in the project's code, for advice."""
        return self.__qualname__.rpartition(".")[2]

    def using(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return the same with options for its next jobs, those of `hipq_django.enqueue`.

        Options that are given later win.
        """
        split_options(self.name, options)  # raises for an unknown one
        made = object.__new__(type(self))
        vars(made).update({**vars(self), "options": {**self.options, **options}})
        return made

    def check_gathers(self) -> None:
        """Raise an error if a job of this type cannot wait for the ends of others."""

    def checked_data(self, job_data: Any) -> Any:
        """Return the data of a new job as it is stored; for a task, its arguments."""
        return job_data

    def compared(self, job_data: Any) -> Any:
        """Return the data of a job in the form in which those of unique jobs are compared."""
        return job_data

    def set_response_handler(self, handler: Handler) -> None:
        """Set the response handler, as a worker calls it; there can be only one."""
        self._check_free("on_response", self.response_handler)
        self.response_handler = handler

    def set_retry_handler(self, handler: Handler) -> None:
        """Set the retry handler, as a worker calls it; there can be only one."""
        self._check_free("on_error", self.retry_handler)
        self.retry_handler = handler

    def _check_free(self, name: str, taken: Handler | None) -> None:
        if taken is not None:
            raise InvalidJobTypeError(
                f"job type {self.name!r} already has {name} {taken.__qualname__}; remove one."
            )


def checked_values(
    name: object, queue: object, instance: object, options: TypeOptions
) -> dict[str, Any]:
    """Return the values of a `Declaration`; raise `InvalidJobTypeError` for invalid ones."""
    for option in options.keys() - set(TYPE_OPTIONS):
        raise UnknownOptionError(f"job type {name!r}", option, (*TYPE_OPTIONS, "queue", "instance"))
    try:
        checked = checked_type_name(name)
    except InvalidJobError as error:
        raise InvalidJobTypeError(str(error)) from error
    try:
        defaults = _defaults(options)
        return {
            "name": checked,
            "instance": checked_name("instance", instance),
            "queue": checked_name("queue", queue),
            "defaults": defaults,
            "policy": _checked_policy(name, options.get("retry")),
            "max_timeout": checked_max_timeout(
                options.get("max_timeout"), defaults["default_timeout"]
            ),
            "sensitive": checked_fields(options.get("sensitive", ())),
            "counted_answers": bool(options.get("counted_answers")),
            "aliases": _checked_aliases(options.get("aliases", ())),
            "unique": checked_unique(options.get("unique"), options.get("unique_on")),
            "schedules": _checked_schedules(checked, options.get("schedule")),
        }
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"job type {name!r}: {error}") from error
    except InvalidJobError as error:
        raise InvalidJobTypeError(f"job type {name!r}: {error}") from error


def check_is_function(name: str, handler: object) -> None:
    """Raise `InvalidJobTypeError` for a handler that is none."""
    if not callable(handler) or not hasattr(handler, "__qualname__"):
        raise InvalidJobTypeError(f"job type {name!r}: handler {handler!r:.100} is not a function.")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidJobTypeError(
            f"job type {name!r}: {handler.__qualname__} is a generator, none of whose code runs "
            "when it is called; return a list instead of using yield."
        )


def _defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    return {o.column: o.check(given.get(o.name, o.default)) for o in OF_TYPES}


def _checked_schedules(name: str, given: Any) -> dict[str, Cron | Every]:
    if given is None:
        return {}
    named = given if isinstance(given, Mapping) else {name: given}
    return {checked_schedule_name(key): spec_of(spec) for key, spec in named.items()}


def _checked_aliases(aliases: object) -> tuple[str, ...]:
    # What can be read only once would be none where the options are looked at again.
    if not isinstance(aliases, list | tuple):
        example = aliases if isinstance(aliases, str) else "former_name"
        raise InvalidJobError(f"aliases={aliases!r:.100}: give a list of names, [{example!r}].")
    return tuple(map(checked_type_name, aliases))


def _checked_policy(name: object, policy: Any) -> RetryPolicy | None:
    usable = callable(getattr(policy, "decide", None)) and not isinstance(policy, type)
    if policy is None or usable:
        return policy  # type: ignore[no-any-return]  # by what it can do
    raise InvalidJobTypeError(
        f"job type {name!r}: retry={policy!r} is not a policy; give Exponential(…), Fixed(…), "
        "Never() or an object with a method decide(failure)."
    )
